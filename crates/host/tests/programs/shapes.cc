// Names for the demangler: a namespace, a template, a constructor.
#include <cstdio>
namespace shapes {
struct Square {
    double side;
    __attribute__((noinline)) explicit Square(double s) : side(s) {}
    __attribute__((noinline)) double area() const { return side * side; }
};
template <typename T> __attribute__((noinline)) T twice(T value) { return value + value; }
}
int main() {
    shapes::Square square(3);
    std::printf("%g\n", shapes::twice<double>(square.area()));
}
