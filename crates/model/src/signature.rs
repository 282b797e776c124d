//! Names of functions as demanglers write them: with return type, template arguments and parameters.

/// The name of a function without its return type, template arguments and parameters: `a::heavy` of `void a::heavy<int>(float*)`.
/// A name without these is returned unchanged.
pub fn function(name: &str) -> &str {
    let (mut depth, mut begin, mut end) = (0_usize, 0, name.len());
    for (at, letter) in name.char_indices() {
        let rest = &name[at..];
        match letter {
            '(' if depth == 0
                && at > begin
                && !rest.starts_with("(anonymous")
                && !name[..at].ends_with("operator") =>
            {
                end = at;
                break;
            }
            ' ' if depth == 0 && !name[..at].ends_with("operator") => begin = at + 1,
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let whole = name[begin..end].trim_end();
    let bare = whole.ends_with('>').then(|| whole.find('<')).flatten().filter(|at| *at > 0);
    match bare.map_or(whole, |at| &whole[..at]) {
        "" => name,
        found => found,
    }
}

/// Whether `wanted` is the name of this function, with or without its namespace and class.
pub fn is_function(name: &str, wanted: &str) -> bool {
    let own = function(name);
    own == wanted || own.strip_suffix(wanted).is_some_and(|before| before.ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_without_return_type_namespace_and_parameters() {
        for (name, own) in [
            ("heavy_kernel(float*, float const*)", "heavy_kernel"),
            ("void heavy_kernel<float>(float*)", "heavy_kernel"),
            ("std::vector<int> a::b::make(int (*)(int))", "a::b::make"),
            ("(anonymous namespace)::work(int)", "(anonymous namespace)::work"),
            ("Functor::operator()(int) const", "Functor::operator()"),
            ("void each<lambda(int)>(int)", "each"),
            ("MPI_Send", "MPI_Send"),
            ("<T as core::Trait>::method", "<T as core::Trait>::method"),
            ("", ""),
        ] {
            assert_eq!(function(name), own, "{name}");
        }
        assert!(is_function("void a::heavy(int)", "heavy") && is_function("void a::heavy(int)", "a::heavy"));
        assert!(
            !is_function("void a::too_heavy(int)", "heavy") && !is_function("heavy_kernel(int)", "heavy")
        );
    }
}
