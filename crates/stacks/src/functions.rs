//! Functions and their names.

use std::collections::HashMap;
use std::sync::Arc;

use ampere_model::text::Bounded;
use cpp_demangle::DemangleOptions;

/// A function's number: the same in all processes that have its file mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// A function that was found on a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// As its language writes it; `libx.so+0x1234` without a symbol, `[unknown]` without even an unwind table.
    pub name: String,
    /// As the file writes it: the symbol. Empty without one.
    pub canonical: String,
    /// The file that it is in.
    pub module: Arc<str>,
    /// Its source file, as far as known; empty else.
    pub file: String,
    /// Where in its source file it begins, as far as known; 0 else.
    pub line: u32,
    pub(crate) role: Role,
}

/// What a function is for, where its frames are not shown always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Any,
    /// It only starts a process or a thread: left out at the outer end.
    Start,
    /// One of Python's functions.
    Python,
    /// The interpreter's loop and calls: inside one of Python's functions they are that function.
    Interpreter,
}

impl Role {
    /// Of a function with this symbol. `starts`: it can be one that starts a process or a thread.
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

/// So many are told apart; all others are one.
const FUNCTIONS_MAX: usize = 1 << 20;

/// All functions that were found.
pub(crate) struct Functions {
    all: Vec<Function>,
    /// Those that were inlined into each other somewhere, innermost first.
    chains: Vec<Arc<[FunctionId]>>,
    numbers: HashMap<Arc<[FunctionId]>, Chain>,
}

/// The number of functions that were inlined into each other; the first is of none.
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

/// A C++ name that would be longer stays as the file writes it: with each substitution, a name can be twice as long.
const DEMANGLED_MAX: usize = 1 << 14;

/// A symbol's name as its language writes it.
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
