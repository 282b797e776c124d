//! A list of CPUs as Slurm, taskset and the kernel write it ("0-3,8").

/// CPUs of a node, by the kernel's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<usize>);

/// The kernel's largest number of CPUs (CONFIG_NR_CPUS) fits into this.
const MOST_CPUS: usize = 1024;

impl Cpus {
    /// The error says what is wrong with the list.
    pub fn parse(text: &str) -> Result<Cpus, String> {
        let wrong = || format!("{text:?} is no list of CPUs: write it like 0-3,8");
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            if last >= MOST_CPUS {
                return Err(format!("{text:?}: CPUs are numbered up to {}", MOST_CPUS - 1));
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }

    /// Their numbers, in the order in which they were given.
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_others_write_them() {
        assert_eq!(Cpus::parse("3"), Ok(Cpus(vec![3])));
        assert_eq!(Cpus::parse("0-2, 8"), Ok(Cpus(vec![0, 1, 2, 8])));
        for wrong in ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999999"] {
            assert!(Cpus::parse(wrong).unwrap_err().contains(&format!("{wrong:?}")), "{wrong}");
        }
    }
}
