//! Reads Score-P's filter files, which list functions that are not to be recorded.
//!
//! ```text
//! SCOREP_FILE_NAMES_BEGIN   EXCLUDE */generated/*   SCOREP_FILE_NAMES_END
//! SCOREP_REGION_NAMES_BEGIN EXCLUDE tiny get_*  INCLUDE get_all  EXCLUDE MANGLED _ZN3foo*  SCOREP_REGION_NAMES_END
//! ```
//!
//! The last matching rule applies, and a file that is excluded excludes its functions. `#` starts a comment.

/// The variable that names the file, both for Score-P and for the embedded host.
pub const ENV_FILTER: &str = "SCOREP_FILTERING_FILE";

/// The rules of a filter file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    files: Vec<Rule>,
    regions: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    excludes: bool,
    /// Whether the rule applies to the linker's name.
    of_mangled: bool,
    /// A pattern with the wildcards of fnmatch.
    pattern: String,
}

/// The reason why a file cannot be read as a filter.
#[derive(Debug, PartialEq)]
pub struct FilterError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The error in this line.
    pub why: String,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for FilterError {}

const BLOCKS: [(&str, &str); 2] = [
    ("SCOREP_FILE_NAMES_BEGIN", "SCOREP_FILE_NAMES_END"),
    ("SCOREP_REGION_NAMES_BEGIN", "SCOREP_REGION_NAMES_END"),
];

impl Filter {
    /// Reads the text of a filter file.
    ///
    /// # Errors
    /// Returns an error for the first word that is out of place.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let mut blocks = [Vec::new(), Vec::new()];
        // The open block, and whether its present rule excludes functions and applies to mangled names.
        let mut open = None;
        let mut excludes = None;
        let mut of_mangled = false;
        let mut last = 1;
        for (line, word) in words(text) {
            last = line;
            let wrong = |why: String| Err(FilterError { line, why });
            let Some(block) = open else {
                open = BLOCKS.iter().position(|(begin, _)| *begin == word);
                (excludes, of_mangled) = (None, false);
                if open.is_none() {
                    return wrong(format!("{word:?}: {} or {} must start a block", BLOCKS[0].0, BLOCKS[1].0));
                }
                continue;
            };
            match word.as_str() {
                "EXCLUDE" | "INCLUDE" => (excludes, of_mangled) = (Some(word == "EXCLUDE"), false),
                "MANGLED" | "DEMANGLED" if excludes.is_some() => of_mangled = word == "MANGLED",
                end if end == BLOCKS[block].1 => open = None,
                _ => match excludes {
                    Some(excludes) => blocks[block].push(Rule { excludes, of_mangled, pattern: word }),
                    None => return wrong(format!("{word:?}: EXCLUDE or INCLUDE must start a rule")),
                },
            }
        }
        if let Some(block) = open {
            return Err(FilterError { line: last, why: format!("there is no {}", BLOCKS[block].1) });
        }
        let [files, regions] = blocks;
        Ok(Filter { files, regions })
    }

    /// Whether a function with this name, linker's name and source file is not to be recorded. `matches` compares a pattern with
    /// a name, as fnmatch does.
    pub fn excludes(
        &self,
        (name, mangled, file): (&str, &str, &str),
        matches: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let last = |rules: &[Rule]| {
            let of = |rule: &&Rule| matches(&rule.pattern, if rule.of_mangled { mangled } else { name });
            rules.iter().rev().find(of).is_some_and(|rule| rule.excludes)
        };
        let is_of_excluded_file = self
            .files
            .iter()
            .rev()
            .find(|rule| matches(&rule.pattern, file))
            .is_some_and(|rule| rule.excludes);
        is_of_excluded_file || last(&self.regions)
    }
}

/// Returns the words of a text with their lines. A backslash is kept with the character that follows it.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut is_inside = false;
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '#' => break,
                letter if letter.is_whitespace() => is_inside = false,
                letter => {
                    if !is_inside {
                        words.push((number + 1, String::new()));
                    }
                    is_inside = true;
                    let Some((_, word)) = words.last_mut() else { continue };
                    word.push(letter);
                    if letter == '\\' {
                        word.extend(letters.next());
                    }
                }
            }
        }
    }
    words
}

/// Returns a pattern that matches a name. Characters with a meaning in filter files are replaced by `?`.
pub fn pattern_of(name: &str) -> String {
    let is_special =
        |letter: char| letter.is_whitespace() || letter.is_control() || "*?[]\\#".contains(letter);
    name.chars().map(|letter| if is_special(letter) { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_matching_rule_applies() {
        let text = "# comment\nSCOREP_REGION_NAMES_BEGIN\n EXCLUDE get_* a\\ b # more\n  tiny MANGLED _ZN* \n INCLUDE get_all\n\
                    SCOREP_REGION_NAMES_END SCOREP_FILE_NAMES_BEGIN EXCLUDE */gen/* SCOREP_FILE_NAMES_END";
        let filter = Filter::parse(text).unwrap();
        let excludes = |name: &str, mangled: &str, file: &str| {
            filter.excludes((name, mangled, file), |pattern, name| {
                crate::matches(&pattern.replace('\\', ""), name)
            })
        };
        for name in ["get_one", "tiny", "a b"] {
            assert!(excludes(name, name, "x.c"), "{name}");
        }
        for name in ["get_all", "main", "a", "_ZN3foo"] {
            assert!(!excludes(name, "", "x.c"), "{name}");
        }
        assert!(excludes("foo::bar()", "_ZN3foo3barEv", "x.cc"));
        assert!(excludes("get_all", "get_all", "/src/gen/x.c"), "a file's rule cannot be undone");
        assert_eq!(Filter::parse(" # nothing\n"), Ok(Filter::default()));
    }

    #[test]
    fn a_word_out_of_place_is_named_with_its_line() {
        let why = |text: &str| Filter::parse(text).unwrap_err().to_string();
        assert!(why("\nEXCLUDE x").starts_with("line 2: \"EXCLUDE\": SCOREP_FILE_NAMES_BEGIN or"));
        assert!(why("SCOREP_REGION_NAMES_BEGIN\nx").starts_with("line 2: \"x\": EXCLUDE"));
        assert_eq!(
            why("SCOREP_REGION_NAMES_BEGIN\nEXCLUDE x\n\n"),
            "line 2: there is no SCOREP_REGION_NAMES_END"
        );
    }

    #[test]
    fn a_pattern_of_a_name_is_one_word() {
        let pattern = pattern_of("std::f<int>(char *, int) [clone #1]");
        assert_eq!(pattern, "std::f<int>(char??,?int)??clone??1?");
        assert!(crate::matches(&pattern, "std::f<int>(char *, int) [clone #1]"));
    }
}
