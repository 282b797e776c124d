//! Checks an anchor file before OTF2 reads it.
//!
//! OTF2 allocates memory for the number of properties in the file. One wrong byte can make that 20 GB, which OTF2 then searches
//! for half a minute. Therefore the check makes sure that the file is long enough for this number.
//!
//! Later formats of the file extend earlier ones at the end.
//!
//! ```text
//! 0   end marks      1   byte order, 'B' or '#'      2   "OTF2" 0      7   format; versions, 4 bytes
//! 12  chunk sizes, 2 x u64      28  substrate, compression      30  locations, definitions, 2 x u64
//! 46  machine, creator, description: each ends with a 0
//!     since format 2: number of properties u32, each a name and a value
//! ```

const BYTE_ORDER: usize = 1;
const FORMAT: usize = 7;
const FIRST_WITH_PROPERTIES: u8 = 2;
const LITTLE_ENDIAN: u8 = b'B';
const STRINGS: usize = 46;

/// Checks the bytes of an anchor file. `Err` contains the reason.
pub fn check(bytes: &[u8]) -> Result<(), &'static str> {
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
    // A name and a value take at least two bytes.
    if u64::from(count) * 2 > rest.len() as u64 {
        return Err("it is too short for its number of properties");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_properties_must_fit_into_the_file() {
        let mut bytes = b"\x03BOTF2\0".to_vec();
        bytes.push(3);
        bytes.resize(STRINGS, 0);
        bytes.extend_from_slice(b"machine\0creator\0\0");
        let number = bytes.len();
        bytes.extend_from_slice(&[2, 0, 0, 0]);
        bytes.extend_from_slice(b"a\0b\0c\0d\0");
        assert_eq!(check(&bytes), Ok(()));
        bytes[number + 3] = 0x50;
        assert!(check(&bytes).is_err());
        bytes[FORMAT] = 59;
        assert!(check(&bytes).is_err(), "later formats have properties, too");
        bytes[FORMAT] = 1;
        assert_eq!(check(&bytes), Ok(()), "the format has no properties");
        bytes[FORMAT] = 3;
        assert!((0..number + 4).all(|length| check(&bytes[..length]).is_err()));
    }
}
