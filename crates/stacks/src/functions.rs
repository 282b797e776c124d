//! Functions and their names.

use std::collections::HashMap;
use std::sync::Arc;

use ampere_model::text::Bounded;
use cpp_demangle::DemangleOptions;

/// The number of a function, which is the same in all processes that have mapped its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// A function that was found on a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The demangled name; `libx.so+0x1234` without a symbol, `[unknown]` without even an unwind table.
    pub name: String,
    /// The symbol; empty if there is none.
    pub canonical: String,
    /// The file that contains the function.
    pub module: Arc<str>,
    /// The source file; empty if it is not known.
    pub file: String,
    /// The first line in the source file; 0 if it is not known.
    pub line: u32,
    pub(crate) role: Role,
}

/// The role of a function, which decides whether its frames are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Any,
    /// The function only starts a process or a thread: it is left out at the outer end.
    Start,
    Python,
    /// The interpreter's loop or calls, which are left out inside a Python function.
    Interpreter,
}

impl Role {
    /// Returns the role of a function with this symbol. `starts`: its file can contain functions that start a process or a
    /// thread.
    pub(crate) fn of(symbol: &str, starts: bool) -> Role {
        const INTERPRETER: [&str; 5] = [
            "_PyEval_EvalFrameDefault",
            "_PyEval_Vector",
            "_PyFunction_Vectorcall",
            "PyObject_Vectorcall",
            "py_trampoline_evaluator",
        ];
        match starts && is_start(symbol) {
            true => Role::Start,
            false if INTERPRETER.contains(&symbol) => Role::Interpreter,
            false => Role::Any,
        }
    }
}

/// The maximum number of functions, and of chains, that are distinguished. All further functions get the number of the unknown
/// one, and all further chains that of the empty one.
const FUNCTIONS_MAX: usize = 1 << 20;

/// All functions that were found.
pub(crate) struct Functions {
    all: Vec<Function>,
    /// The chains of functions that were inlined into each other, innermost first.
    chains: Vec<Arc<[FunctionId]>>,
    numbers: HashMap<Arc<[FunctionId]>, Chain>,
}

/// The number of a chain of functions that were inlined into each other; chain 0 is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Chain(u32);

impl Functions {
    pub(crate) fn new() -> Functions {
        let unknown = Function {
            name: "[unknown]".into(),
            canonical: String::new(),
            module: "".into(),
            file: String::new(),
            line: 0,
            role: Role::Any,
        };
        let none: Arc<[FunctionId]> = Arc::default();
        let numbers = HashMap::from([(none.clone(), Chain::default())]);
        Functions { all: vec![unknown], chains: vec![none], numbers }
    }

    pub(crate) fn get(&self, id: FunctionId) -> &Function {
        self.all.get(id.0 as usize).unwrap_or(&self.all[0])
    }

    pub(crate) fn add(&mut self, function: Function) -> FunctionId {
        if self.all.len() >= FUNCTIONS_MAX {
            return FunctionId(0);
        }
        self.all.push(function);
        FunctionId(self.all.len() as u32 - 1)
    }

    pub(crate) fn chain(&self, chain: Chain) -> &[FunctionId] {
        &self.chains[chain.0 as usize]
    }

    pub(crate) fn add_chain(&mut self, functions: Vec<FunctionId>) -> Chain {
        if let Some(known) = self.numbers.get(functions.as_slice()) {
            return *known;
        }
        if self.chains.len() >= FUNCTIONS_MAX {
            return Chain::default();
        }
        let (number, functions) = (Chain(self.chains.len() as u32), Arc::from(functions));
        self.chains.push(Arc::clone(&functions));
        self.numbers.insert(functions, number);
        number
    }
}

/// The maximum length of a demangled C++ name: each substitution can double a name. A longer one is not demangled.
const DEMANGLED_MAX: usize = 1 << 14;

pub(crate) fn demangle(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    if symbol.starts_with("_Z") {
        let mut name = Bounded { text: String::new(), bytes_max: DEMANGLED_MAX };
        let demangled = cpp_demangle::Symbol::new(symbol)
            .is_ok_and(|parsed| parsed.structured_demangle(&mut name, &DemangleOptions::default()).is_ok());
        return if demangled { name.text } else { symbol.to_owned() };
    }
    ampere_model::fortran::demangle(symbol).unwrap_or_else(|| symbol.to_owned())
}

/// Whether a function with this symbol only starts a process or a thread.
fn is_start(symbol: &str) -> bool {
    const STARTS: [&str; 14] = [
        "_start",
        "_dl_start_user",
        "__libc_start_main",
        "__libc_start_main_impl",
        "__libc_start_call_main",
        "libc_start_main_stage2",
        "start_thread",
        "start",
        "clone",
        "__clone",
        "clone3",
        "__clone3",
        "__clone_internal",
        "thread_start",
    ];
    STARTS.contains(&symbol.strip_prefix("__GI_").unwrap_or(symbol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_their_language() {
        for (symbol, name) in [
            ("_ZN3hpl6updateEi", "hpl::update(int)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("__work_MOD_heavy", "work::heavy"),
            ("_Zbroken", "_Zbroken"),
            ("main", "main"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    #[test]
    fn a_name_that_doubles_with_each_part_stays_a_symbol() {
        let pairs: String =
            ('0'..='9').chain('A'..='T').map(|number| format!("S_IS{number}_S{number}_E")).collect();
        let symbol = format!("_Z1f4pairIiiE{pairs}");
        assert_eq!(demangle(&symbol), symbol);
    }
}
