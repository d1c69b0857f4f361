//! Breaks a valid input in the ways in which inputs are broken: by accident, by a version that is not ours, on purpose.

use proptest::prelude::*;

/// What is put in: the syntax of everything that is read here, numbers at the edges, and text that is not plain.
const PIECES: [&[u8]; 40] = [
    b"",
    b" ",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b":",
    b",",
    b"0:,",
    b"9:maitred/1,",
    b"52:",
    b"999999999:",
    b"0",
    b"-1",
    b"+1",
    b"1e309",
    b"0.5",
    b"9007199254740993",
    b"18446744073709551615",
    b"18446744073709551616",
    b"340282366920938463463374607431768211456",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{}",
    b"{\"a\":",
    b"[[",
    b"null",
    b"true",
    b"&a *a",
    b"<<: ",
    b"--- ",
    "é".as_bytes(),
    "\u{1f9c0}".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    "\u{2028}".as_bytes(),
    b"\xff",
    b"\xc3",
];

/// One change: which, where, and how.
type Change = (u8, u16, u16);

/// Up to four changes to one input.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(any::<Change>(), 1..5)
}

/// The input after the changes.
pub fn damaged(input: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for (which, at, how) in changes {
        change(&mut bytes, *which, usize::from(*at), usize::from(*how));
    }
    bytes
}

/// The same for texts: what is no UTF-8 any more becomes the replacement character, as at the edge of the store.
pub fn damaged_text(input: &str, changes: &[Change]) -> String {
    String::from_utf8_lossy(&damaged(input.as_bytes(), changes)).into_owned()
}

fn change(bytes: &mut Vec<u8>, which: u8, at: usize, how: usize) {
    let at = at % (bytes.len() + 1);
    let end = (at + 1 + how % 24).min(bytes.len());
    let piece = PIECES[how % PIECES.len()];
    match which % 9 {
        0 if at < bytes.len() => bytes[at] ^= 1 << (how % 8),
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let twice = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, twice));
        }
        4 => {
            // A number becomes another one.
            let from = bytes[at..].iter().position(u8::is_ascii_digit).map_or(bytes.len(), |step| at + step);
            let to =
                bytes[from..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |step| from + step);
            drop(bytes.splice(from..to, piece.iter().copied()));
        }
        5 => {
            let depth = [8, 128, 512, 2_000][how % 4];
            let nested = [b"[".as_slice(), b"{\"a\":", b"\n a:", b"(", b"1:"][(how / 4) % 5].repeat(depth);
            drop(bytes.splice(at..at, nested));
        }
        6 => {
            let long = [b"a".as_slice(), b"0", b"9", "é".as_bytes()][how % 4].repeat(how % 300);
            drop(bytes.splice(at..at, long));
        }
        7 => bytes.reverse(),
        _ => drop(bytes.splice(at..at, piece.iter().copied())),
    }
}

/// Bytes without any sense, few or many.
pub fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..32),
        1 => prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..12).prop_map(|pieces| pieces.concat()),
    ]
}
