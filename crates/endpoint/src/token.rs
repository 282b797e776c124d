//! The token that requests carry. It is read from a file of this user, or made for a run.

use crate::proof::hexadecimal;
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The minimum length of a token. A shorter one can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 4096;
/// The run's own token, in the output directory of its first node.
pub const RUN_TOKEN: &str = "collector.token";
/// The permissions of the token's file.
const TOKEN_MODE: u32 = 0o600;
/// The number of random bytes in the run's own token.
const RANDOM_BYTES: usize = 24;
/// The maximum time to wait for the token's file, which the collector of another node may be writing.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// The secret that requests carry. It is never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// The reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the token file {} {problem}", .path.display())]
pub struct TokenError {
    path: PathBuf,
    problem: TokenProblem,
}

#[derive(Debug, thiserror::Error)]
enum TokenProblem {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("cannot be made: {0}")]
    Unwritable(std::io::Error),
    #[error("is not a file")]
    NotAFile,
    #[error("belongs to another user: make your own")]
    OfAnotherUser,
    #[error("is accessible to other users: use chmod 600")]
    OpenToOthers,
    #[error("has {0} bytes: use {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}")]
    Length(usize),
    #[error("contains more than one word, or characters other than ASCII")]
    Characters,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads a token from a file that only this user can read.
    pub fn load(path: &Path) -> Result<Token, TokenError> {
        Token::read(path, OFlags::empty()).map_err(|problem| TokenError { path: path.to_owned(), problem })
    }

    /// Reads the token of a run whose results are in this directory. The directory may belong to any user, so a link in it is not
    /// followed.
    pub fn of_results(directory: &Path) -> Result<Token, TokenError> {
        let path = directory.join(RUN_TOKEN);
        Token::read(&path, OFlags::NOFOLLOW).map_err(|problem| TokenError { path, problem })
    }

    fn read(path: &Path, more: OFlags) -> Result<Token, TokenProblem> {
        // Opening a pipe must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | more;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(std::io::Error::from)?;
        let found = rustix::fs::fstat(&file).map_err(std::io::Error::from)?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(TokenProblem::NotAFile);
        }
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(TokenProblem::OfAnotherUser);
        }
        if found.st_mode & 0o077 != 0 {
            return Err(TokenProblem::OpenToOthers);
        }
        let mut bytes = vec![0; TOKEN_BYTES_MAX + 2];
        let length = rustix::io::read(&file, &mut bytes).map_err(std::io::Error::from)?;
        let token = bytes[..length].trim_ascii();
        if token.len() < TOKEN_BYTES_MIN || token.len() > TOKEN_BYTES_MAX {
            return Err(TokenProblem::Length(token.len()));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenProblem::Characters);
        }
        Ok(Token(token.to_owned()))
    }

    /// Returns the run's own token, and makes it unless another of its collectors has made it. `directory` is the output
    /// directory of the first node.
    pub fn of_run(directory: &Path) -> Result<Token, TokenError> {
        let path = directory.join(RUN_TOKEN);
        let made = ampere_owned::Directory::own(directory)
            .and_then(|directory| directory.create(RUN_TOKEN.as_ref(), TOKEN_MODE));
        let written = match made {
            Ok(mut file) => random_token().and_then(|token| file.write_all(token.as_bytes())),
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(why) => Err(why),
        };
        written.map_err(|why| TokenError { path: path.clone(), problem: TokenProblem::Unwritable(why) })?;
        let begun = Instant::now();
        loop {
            match Token::of_results(directory) {
                Err(TokenError { problem: TokenProblem::Length(_), .. }) if begun.elapsed() < WRITE_LIMIT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                loaded => return loaded,
            }
        }
    }

    /// Returns the value of a request's `Authorization` header.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }

    /// Returns the token's bytes, the key for the authentication codes that prove knowledge of the token.
    pub fn secret(&self) -> &[u8] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Token {
        Token(text.as_bytes().to_vec())
    }

    /// Compares a value with the token. This takes the same time for every value of one length, so that timing reveals nothing
    /// about the token.
    pub fn is(&self, given: &[u8]) -> bool {
        let mut different = self.0.len() ^ given.len();
        for (at, byte) in given.iter().enumerate() {
            different |= usize::from(byte ^ self.0[at % self.0.len()]);
        }
        std::hint::black_box(different) == 0
    }
}

fn random_token() -> std::io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hexadecimal(&bytes) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_token_next_to_results_is_not_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("private"), place.path().join(RUN_TOKEN));
        std::fs::write(&real, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(Token::of_results(place.path()).is_err() && Token::load(&link).is_ok());
        std::fs::remove_file(&link).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &link,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(Token::of_results(place.path()).unwrap_err().to_string().contains("is not a file"));
    }

    #[test]
    fn a_token_file_must_be_a_private_file_with_one_word() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let refused = |words: &str| {
            let why = Token::load(&path).unwrap_err().to_string();
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        };
        refused("cannot be read");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        refused("is accessible to other users");
        mode(0o600);
        assert_eq!(Token::load(&path).unwrap().authorization(), "Bearer 0123456789abcdef");
        for (content, words) in
            [("short", "has 5 bytes"), ("two words of a token", "more than one word"), ("", "has 0 bytes")]
        {
            std::fs::write(&path, content).unwrap();
            refused(words);
        }
        std::fs::write(&path, "x".repeat(TOKEN_BYTES_MAX + 1)).unwrap();
        refused("bytes: use");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused("is not a file");
    }
}
