//! What an anchor file claims, before OTF2 believes it.
//!
//! OTF2 makes room for as many properties as the file says there are: with one byte too many in it that is 20 GB, which it
//! then looks through for half a minute. So it is asked first whether the file is long enough for them.
//!
//! Of anchor files, later formats have all that earlier ones have, and more behind it.
//!
//! ```text
//! 0   end marks      1   byte order, 'B' or '#'      2   "OTF2" 0      7   format; versions, 4 bytes
//! 12  chunk sizes, 2 x u64      28  substrate, compression      30  locations, definitions, 2 x u64
//! 46  machine, creator, description: each to its 0
//!     since format 2: number of properties u32, each a name and a value
//! ```

const BYTE_ORDER: usize = 1;
const FORMAT: usize = 7;
const FIRST_WITH_PROPERTIES: u8 = 2;
const LITTLE_ENDIAN: u8 = b'B';
const STRINGS: usize = 46;

/// Why these cannot be the bytes of an anchor file.
pub fn look(bytes: &[u8]) -> Result<(), &'static str> {
    if bytes.get(FORMAT).is_some_and(|format| *format < FIRST_WITH_PROPERTIES) {
        return Ok(());
    }
    let mut rest = bytes.get(STRINGS..).ok_or("it is too short")?;
    for _ in 0..3 {
        let end = rest.iter().position(|byte| *byte == 0).ok_or("it ends within a name")?;
        rest = &rest[end + 1..];
    }
    let (count, rest) = rest.split_first_chunk::<4>().ok_or("it is too short")?;
    let count = if bytes[BYTE_ORDER] == LITTLE_ENDIAN {
        u32::from_le_bytes(*count)
    } else {
        u32::from_be_bytes(*count)
    };
    // A name and a value take two bytes at least.
    if u64::from(count) * 2 > rest.len() as u64 {
        return Err("it has not as many properties as it says");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_properties_as_it_has_room_for() {
        let mut bytes = b"\x03BOTF2\0".to_vec();
        bytes.push(3);
        bytes.resize(STRINGS, 0);
        bytes.extend_from_slice(b"machine\0creator\0\0");
        let number = bytes.len();
        bytes.extend_from_slice(&[2, 0, 0, 0]);
        bytes.extend_from_slice(b"a\0b\0c\0d\0");
        assert_eq!(look(&bytes), Ok(()));
        bytes[number + 3] = 0x50;
        assert!(look(&bytes).is_err());
        bytes[FORMAT] = 59;
        assert!(look(&bytes).is_err(), "of a format that is yet to come");
        bytes[FORMAT] = 1;
        assert_eq!(look(&bytes), Ok(()), "of one without properties");
        bytes[FORMAT] = 3;
        assert!((0..number + 4).all(|length| look(&bytes[..length]).is_err()));
    }
}
