//! Parses names of functions as demanglers write them: with return type, template arguments and parameters.

/// Returns the name of a function without its return type, template arguments and parameters: `a::heavy` for `void
/// a::heavy<int>(float*)`. A name without these is returned unchanged.
pub fn function(name: &str) -> &str {
    let whole = without_arguments(name);
    let brackets = outside_of_brackets(whole, "<").into_iter().rfind(|at| *at > 0);
    // After the last bracket of `A<int>::operator>` comes the function's name.
    let own =
        brackets.filter(|at| whole.ends_with('>') && outside_of_brackets(&whole[*at..], "::").is_empty());
    own.map_or(whole, |at| whole[..at].trim_end())
}

/// Whether `wanted` is the name of this function, with or without its namespace and class.
pub fn is_function(name: &str, wanted: &str) -> bool {
    let own = function(name);
    own == wanted || own.strip_suffix(wanted).is_some_and(|before| before.ends_with("::"))
}

/// Returns the name without the arguments and the return type of a C++ function.
pub fn without_arguments(name: &str) -> &str {
    let is_clone = name.ends_with(']') && name.contains(" [clone ");
    let name = if is_clone { &name[..name.find(" [clone ").unwrap_or(name.len())] } else { name };
    let called = ["const", "volatile", "noexcept", "&&", "&"].iter().fold(name, |name, word| {
        let before = name.strip_suffix(word).and_then(|name| name.strip_suffix(' '));
        before.filter(|before| before.ends_with(')')).unwrap_or(name)
    });
    let Some(open) = last_arguments(called) else { return name };
    let function = &called[..open];
    let is_function = !function.is_empty()
        && !function.ends_with([' ', ':', '(', '!'])
        && !function.ends_with("operator")
        && !function.starts_with('!'); // `!$omp parallel` begins the regions of OpenMP in Fortran
    if is_function { without_return_type(function) } else { name }
}

/// Returns the position at which the brackets at the end of a text start.
fn last_arguments(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (c == '(').then_some(at);
        }
    }
    None
}

fn without_return_type(function: &str) -> &str {
    let spaces = outside_of_brackets(function, " ");
    let is_operators = |at: &usize| function[..*at].ends_with("operator");
    let begin = spaces.iter().rev().find(|at| !is_operators(at)).map_or(0, |at| at + 1);
    // The names "operator new" and "operator bool" contain a space.
    match spaces.iter().rev().find(|at| is_operators(at)) {
        Some(own) if begin > *own => function,
        _ => &function[begin..],
    }
}

/// Returns the positions of a separator outside of brackets, from left to right.
pub fn outside_of_brackets(text: &str, separator: &str) -> Vec<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    let mut places = Vec::new();
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if depth == 0 && rest.starts_with(separator) {
            places.push(at);
        }
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += operator(rest).unwrap_or(c.len_utf8());
    }
    places
}

/// Returns the length of the name of an operator, whose brackets do not enclose anything: `operator<`, `operator()`.
pub fn operator(text: &str) -> Option<usize> {
    let sign = text.strip_prefix("operator")?;
    let signs = if sign.starts_with("()") { 2 } else { sign.len() - sign.trim_start_matches(is_sign).len() };
    // The last bracket of `operator*<T>` belongs to the arguments of the template.
    let opens = signs > 1 && &sign[..signs] != "<<" && sign[..signs].ends_with('<');
    let signs = signs - usize::from(opens);
    // A space separates the operator from the arguments of a template: `operator< <int>`.
    let space = usize::from(signs > 0 && sign[signs..].starts_with(" <"));
    (signs > 0).then_some("operator".len() + signs + space)
}

fn is_sign(c: char) -> bool {
    "<>=-+*/%!&|^~,[]".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_the_template_arguments_of_its_class_and_not_its_own() {
        for (name, expected) in [
            ("void a::heavy<int>(float*)", "a::heavy"),
            ("void app::Grid<double>::relax<app::Fast>(int)", "app::Grid<double>::relax"),
            ("bool A<int>::operator>(A<int> const&)", "A<int>::operator>"),
            ("bool ns::operator< <int>(ns::a const&)", "ns::operator<"),
            ("app::Grid<double>::relax(int)", "app::Grid<double>::relax"),
            ("int* a::Box::operator-><int>()", "a::Box::operator->"),
            ("a operator*<a>(a, a)", "operator*"),
        ] {
            assert_eq!(function(name), expected, "{name}");
        }
        assert!(is_function("void app::Grid<double>::relax<app::Fast>(int)", "relax"));
    }

    #[test]
    fn arguments_and_return_types_are_left_out_and_the_function_is_kept() {
        for (name, expected) in [
            ("LAMMPS_NS::PairLJCut::compute(int, int)", "LAMMPS_NS::PairLJCut::compute"),
            ("heavy_kernel(float*, float const*)", "heavy_kernel"),
            ("void scale<float, 256>(float*, int)", "scale<float, 256>"),
            ("std::vector<int, std::allocator<int> > const& all<int>(f(*)(int)) const", "all<int>"),
            ("Matrix::operator()(int, int) const", "Matrix::operator()"),
            ("bool ns::operator< <int>(ns::a const&, ns::a const&)", "ns::operator< <int>"),
            ("std::ostream& ns::operator<<(std::ostream&, ns::a const&)", "ns::operator<<"),
            ("operator new(unsigned long)", "operator new"),
            ("Cell::operator bool() const", "Cell::operator bool"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
            ("ns::(anonymous namespace)::run(long) [clone .cold]", "ns::(anonymous namespace)::run"),
            ("Process 7 (orterun)", "Process 7 (orterun)"),
            ("(anonymous namespace)", "(anonymous namespace)"),
            ("!$omp parallel @solve.f90 (12)", "!$omp parallel @solve.f90 (12)"),
            ("core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"),
            ("f)(", "f)("),
            ("", ""),
            (")", ")"),
        ] {
            assert_eq!(without_arguments(name), expected);
        }
    }

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
