//! Recognises keys by the bytes that terminals send for them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Function(u8),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    Enter,
    Backspace,
    Escape,
    /// The key combination Ctrl-C.
    Interrupt,
    /// The key combination Ctrl-Z.
    Suspend,
}

/// The bytes that follow an escape. F1 to F4 can also be sent as `ESC O P` to `ESC O S`.
const SEQUENCES: [(&[u8], Key); 33] = [
    (b"[A", Key::Up),
    (b"OA", Key::Up),
    (b"[B", Key::Down),
    (b"OB", Key::Down),
    (b"[5~", Key::PageUp),
    (b"[6~", Key::PageDown),
    (b"[H", Key::Home),
    (b"OH", Key::Home),
    (b"[1~", Key::Home),
    (b"[7~", Key::Home),
    (b"[F", Key::End),
    (b"OF", Key::End),
    (b"[4~", Key::End),
    (b"[8~", Key::End),
    (b"[Z", Key::BackTab),
    (b"OP", Key::Function(1)),
    (b"OQ", Key::Function(2)),
    (b"OR", Key::Function(3)),
    (b"OS", Key::Function(4)),
    (b"[[A", Key::Function(1)),
    (b"[[B", Key::Function(2)),
    (b"[[C", Key::Function(3)),
    (b"[[D", Key::Function(4)),
    (b"[[E", Key::Function(5)),
    (b"[11~", Key::Function(1)),
    (b"[12~", Key::Function(2)),
    (b"[13~", Key::Function(3)),
    (b"[14~", Key::Function(4)),
    (b"[15~", Key::Function(5)),
    (b"[17~", Key::Function(6)),
    (b"[18~", Key::Function(7)),
    (b"[20~", Key::Function(9)),
    (b"[21~", Key::Function(10)),
];

/// Returns the pressed keys. A terminal sends the bytes of one key in one piece, so an escape at the end is the Escape key.
pub fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let (key, length) = match first {
            0x1b => escaped(rest),
            3 => (Some(Key::Interrupt), 1),
            26 => (Some(Key::Suspend), 1),
            b'\t' => (Some(Key::Tab), 1),
            b'\r' | b'\n' => (Some(Key::Enter), 1),
            8 | 0x7f => (Some(Key::Backspace), 1),
            ..0x20 => (None, 1),
            _ => character(bytes),
        };
        keys.extend(key);
        bytes = &bytes[length..];
    }
    keys
}

/// Returns the key whose bytes follow an escape, and the length including the escape.
fn escaped(rest: &[u8]) -> (Option<Key>, usize) {
    if let Some((sequence, key)) = SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence)) {
        return (Some(*key), 1 + sequence.len());
    }
    match rest {
        // The sequence of an unknown key ends with a letter or a tilde.
        [b'[', parameters @ ..] => {
            let end = parameters.iter().position(|byte| matches!(byte, 0x40..=0x7e) && *byte != b'[');
            (None, 2 + end.map_or(parameters.len(), |end| end + 1))
        }
        // Another key in application mode, such as the left arrow.
        [b'O', _, ..] => (None, 3),
        // A key that is pressed together with Alt.
        [b' '..=b'~', ..] => (None, 2),
        _ => (Some(Key::Escape), 1),
    }
}

fn character(bytes: &[u8]) -> (Option<Key>, usize) {
    let some = &bytes[..bytes.len().min(4)];
    let known = match std::str::from_utf8(some) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&some[..error.valid_up_to()]).unwrap_or_default(),
    };
    known.chars().next().map_or((None, 1), |c| (Some(Key::Char(c)), c.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_keys() {
        for (bytes, expected) in [
            (&b"q"[..], vec![Key::Char('q')]),
            (b"\x1b", vec![Key::Escape]),
            (b"\x1b[A\x1bOB\x1b[5~\x1b[H", vec![Key::Up, Key::Down, Key::PageUp, Key::Home]),
            (b"\x1bOP\x1b[15~\x1b[21~", vec![Key::Function(1), Key::Function(5), Key::Function(10)]),
            (b"\x1b[1;5C+", vec![Key::Char('+')]),
            (b"\x1bOD\x1bOC\x1bq+\x1b\x1b[A", vec![Key::Char('+'), Key::Escape, Key::Up]),
            (b"\x1b[<0;1;2Mx\x1b[", vec![Key::Char('x')]),
            ("é日\t".as_bytes(), vec![Key::Char('é'), Key::Char('日'), Key::Tab]),
            (b"\xff\x00a\x7f\x03\r", vec![Key::Char('a'), Key::Backspace, Key::Interrupt, Key::Enter]),
            (b"\x1a", vec![Key::Suspend]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }
}
