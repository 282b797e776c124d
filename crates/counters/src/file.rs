//! A figure in a file of the kernel that is read repeatedly. Its descriptor stays open, and a read at its start makes the kernel
//! update it. A read allocates nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::ReadError;

/// The number of bytes that are read. A file of one line has fewer; the rest of a longer file is not needed.
const READ_BYTES: usize = 128;

#[derive(Debug)]
pub(crate) struct ValueFile {
    path: PathBuf,
    /// `None` after a failed read: a device that was removed and came back has another file under the same name.
    file: Option<File>,
}

impl ValueFile {
    pub fn open(path: PathBuf) -> io::Result<ValueFile> {
        let file = Some(File::open(&path)?);
        Ok(ValueFile { path, file })
    }

    /// Makes it from a file that another process has opened. If a read fails, it is opened by its path, as others are.
    pub fn opened(path: PathBuf, file: File) -> ValueFile {
        ValueFile { path, file: Some(file) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the number at the start of the file.
    pub fn number(&mut self) -> Result<u64, ReadError> {
        self.read(|text| leading_number(text).map(|(number, _)| number))
    }

    /// Returns the result of `parse` for the file's text.
    pub fn read<T>(&mut self, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T, ReadError> {
        let result = self.try_read(parse);
        if result.is_err() {
            self.file = None;
        }
        result
    }

    fn try_read<T>(&mut self, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T, ReadError> {
        let file = match &self.file {
            Some(file) => file,
            // A path of less than 384 bytes is passed to the kernel from the stack, without an allocation.
            None => self.file.insert(File::open(&self.path).map_err(ReadError::Io)?),
        };
        let mut bytes = [0; READ_BYTES];
        let length = file.read_at(&mut bytes, 0).map_err(ReadError::Io)?;
        parse(&bytes[..length]).ok_or(ReadError::Malformed)
    }
}

/// Reads the number at the start of a file that does not stay open.
pub(crate) fn number_in(path: &Path) -> Result<u64, ReadError> {
    ValueFile { path: PathBuf::new(), file: Some(File::open(path).map_err(ReadError::Io)?) }.number()
}

/// Returns a number at the start of a text, after blanks, and the text after it. `None` if there is none, if it is too large, or
/// if other characters follow immediately.
pub(crate) fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// Returns the text of a small file without blanks around it, for files that are read once.
pub(crate) fn text_of(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the entries of a folder, in the order of the numbers in their names: `hwmon10` after `hwmon9`.
pub(crate) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(listing) = std::fs::read_dir(folder) else { return Vec::new() };
    let named =
        listing.flatten().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    let mut all: Vec<(String, PathBuf)> = named.collect();
    all.sort_by_cached_key(|(name, _)| natural(name));
    all
}

/// Returns a sort key in which numbers have a fixed width.
fn natural(name: &str) -> String {
    let mut key = String::new();
    let mut digits = String::new();
    for c in name.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        key.push_str(&format!("{digits:0>20}"));
        digits.clear();
        key.push(c);
    }
    key.push_str(&format!("{digits:0>20}"));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_number_and_nothing_else() {
        assert_eq!(leading_number(b"123\n"), Some((123, &b"\n"[..])));
        assert_eq!(leading_number(b" 12 J 34 us\n"), Some((12, &b" J 34 us\n"[..])));
        assert_eq!(leading_number(b"7"), Some((7, &b""[..])));
        for bad in [&b""[..], b"\n", b"x", b"-5\n", b"1.5\n", b"12x\n", b"99999999999999999999\n", b"\xff\n"]
        {
            assert_eq!(leading_number(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_file_that_goes_and_comes_back_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("energy_uj");
        std::fs::write(&path, "1\n").unwrap();
        let mut file = ValueFile::open(path.clone()).unwrap();
        assert_eq!(file.number().unwrap(), 1);
        std::fs::write(&path, "").unwrap();
        assert!(matches!(file.number(), Err(ReadError::Malformed)));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(file.number(), Err(ReadError::Io(_))));
        std::fs::write(&path, "3\n").unwrap();
        assert_eq!(file.number().unwrap(), 3);
    }

    #[test]
    fn entries_are_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b10", "b9", "b9:1", "a"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<String> = entries(folder.path()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b9", "b9:1", "b10"]);
    }
}
