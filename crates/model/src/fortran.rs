//! Names that Fortran compilers give to the procedures of modules.

/// Returns `work::heavy` for the symbol of procedure `heavy` in module `work`, and `None` for other symbols.
///
/// gfortran writes `__work_MOD_heavy`, LLVM's flang `_QMworkPheavy` (and `_QMworkFheavyPinner` for a procedure inside), Intel's
/// compilers `work_mp_heavy_`. Fortran's names are in lower case here: upper case belongs to the compiler.
pub fn demangle(symbol: &str) -> Option<String> {
    let parts = if let Some(rest) = symbol.strip_prefix("__") {
        rest.split("_MOD_").map(str::to_owned).collect()
    } else if let Some(rest) = symbol.strip_prefix("_Q") {
        scopes_of_flang(rest)?
    } else {
        let (module, procedure) = symbol.strip_suffix('_')?.split_once("_mp_")?;
        vec![module.to_owned(), procedure.to_owned()]
    };
    let is_name = |part: &String| {
        part.starts_with(|first: char| first.is_ascii_lowercase())
            && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    (parts.len() > 1 && parts.iter().all(is_name)).then(|| parts.join("::"))
}

/// Returns the symbols, one for each compiler, of a name that may belong to a Fortran procedure. A filter needs all of them.
pub fn symbols_of(name: &str) -> Vec<String> {
    let Some((module, procedure)) = name.split_once("::") else { return Vec::new() };
    let symbols = [
        format!("__{module}_MOD_{procedure}"),
        format!("_QM{module}P{procedure}"),
        format!("{module}_mp_{procedure}_"),
    ];
    symbols.into_iter().filter(|symbol| demangle(symbol).as_deref() == Some(name)).collect()
}

/// Returns the names of modules, submodules and procedures, outermost first, in the text after `_Q`. The last one must be a
/// procedure.
fn scopes_of_flang(mut rest: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut last = None;
    while let Some(tag) = rest.chars().next() {
        last = Some(tag).filter(|tag| matches!(tag, 'M' | 'S' | 'F' | 'P'));
        let name = &rest[last?.len_utf8()..];
        let end = name.find(|next: char| next.is_ascii_uppercase()).unwrap_or(name.len());
        names.push(name[..end].to_owned());
        rest = &name[end..];
    }
    (last == Some('P')).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_of_modules_are_named_as_in_fortran() {
        for (symbol, name) in [
            ("__work_MOD_heavy", "work::heavy"),
            ("__my_work_2_MOD_very_heavy", "my_work_2::very_heavy"),
            ("_QMworkPheavy", "work::heavy"),
            ("_QMworkSpartPheavy", "work::part::heavy"),
            ("_QMworkFheavyPinner", "work::heavy::inner"),
            ("work_mp_heavy_", "work::heavy"),
        ] {
            assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
        }
    }

    #[test]
    fn a_name_has_the_symbols_of_all_compilers() {
        assert_eq!(symbols_of("work::heavy"), ["__work_MOD_heavy", "_QMworkPheavy", "work_mp_heavy_"]);
        assert!(symbols_of("std::move<int>(int)").is_empty() && symbols_of("main").is_empty());
    }

    #[test]
    fn other_names_are_unchanged() {
        for symbol in [
            "",
            "_",
            "__",
            "heavy_",
            "main",
            "MAIN__",
            "__libc_start_main",
            "__MOD_heavy",
            "__work_MOD_",
            "__copy_work_Work",
            "__work_MOD_heavy.constprop.0",
            "_QQmain",
            "_QPheavy",
            "_QMworkEvariable",
            "_QMworkPh\u{e9}avy",
            "_Q\u{e9}",
            "_Z5heavyv",
            "work_mp_heavy",
            "Work_mp_heavy_",
            "_mp_heavy_",
        ] {
            assert_eq!(demangle(symbol), None, "{symbol}");
        }
    }
}
