/* A library whose function is used for the first time while another thread holds the loader's lock. */
__attribute__((noinline)) int of_the_library(int x) {
    return x + 1;
}
