//! The bytes that are signed: netstrings (`<decimal length>:<bytes>,`), and which fields each kind signs.

use std::str::FromStr;

/// The first netstring of all canonical bytes: which protocol, which form.
pub const DOMAIN: &str = "maitred/1";

/// Most netstrings that one text may hold: far above any kind, so that a later version with more fields can still be
/// read far enough to name its version.
pub(super) const NETSTRINGS_MAX: usize = 64;

/// Most digits of a length: no text this crate takes comes near a gigabyte.
const LENGTH_DIGITS_MAX: usize = 9;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $name:literal: $($field:ident)+;)+) => {
        /// What is signed. The kind is part of the signed bytes, so a signature of one kind is worth nothing for another.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $variant,)+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name as it is signed.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The names of the signed fields in the order in which they are signed. Where a kind carries its schema
            /// version, that is the last field, `v`.
            pub const fn fields(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$(stringify!($field)),+],)+
                }
            }

            /// The kind of this name.
            pub fn from_name(name: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.as_str().as_bytes() == name)
            }
        }
    };
}

kinds! {
    /// A member's row and its heartbeat.
    Node "node":
        id role addr epoch incarnation seq sent_at state accepting kill players soft_cap load services labels v;
    /// A reservation, as its server issued it.
    Token "token": id player server server_epoch request attempt payload issued_at expires_at v;
    /// A proxy's claim of a token.
    Claim "claim": id player claimant claimant_epoch claim_op;
    /// Who owns an object.
    Route "route": kind object owner owner_epoch version v;
    /// The bytes of an object in the built-in object store.
    Object "object": kind object cas route_version data v;
    /// A player's place in a line.
    Ticket "ticket": line player lane proxy proxy_epoch session joined_at attributes v;
    /// A call or send to a service.
    Message "message":
        origin origin_epoch from from_epoch to to_epoch service method call hops route sent_at nonce deadline body v;
    /// The answer to a call.
    Reply "reply": call from from_epoch to to_epoch status sent_at nonce body v;
    /// The admission of a player.
    Pass "pass": line player server link expires_at op v;
    /// An entry of the control hash: kill, drain, config.
    Control "control": name value version by at v;
}

/// Hands the netstring of `bytes` to `put`, piece by piece.
pub(super) fn emit_netstring(bytes: &[u8], mut put: impl FnMut(&[u8])) {
    // 20 digits hold any 64-bit length.
    let mut digits = [b'0'; 20];
    let (mut rest, mut used) = (bytes.len(), 0);
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789".get(rest % 10).copied().unwrap_or_default();
        used += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    put(digits.get(digits.len() - used..).unwrap_or_default());
    put(b":");
    put(bytes);
    put(b",");
}

/// Appends `<decimal length>:<bytes>,`.
pub fn push_netstring(out: &mut Vec<u8>, bytes: &[u8]) {
    emit_netstring(bytes, |piece| out.extend_from_slice(piece));
}

/// The bytes that [`Keyring::sign`](super::Keyring::sign) signs: domain, zone, kind and `fields`, each as a netstring.
/// `fields` must be those of [`Kind::fields`].
pub fn canonical(zone: &str, kind: Kind, fields: &[impl AsRef<[u8]>]) -> Vec<u8> {
    // 12 bytes hold the length, colon and comma of any value.
    let values: usize = fields.iter().map(|field| field.as_ref().len() + 12).sum();
    let mut out = Vec::with_capacity(DOMAIN.len() + zone.len() + kind.as_str().len() + 36 + values);
    for part in [DOMAIN, zone, kind.as_str()] {
        push_netstring(&mut out, part.as_bytes());
    }
    for field in fields {
        push_netstring(&mut out, field.as_ref());
    }
    out
}

/// Why bytes are not a list of netstrings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetstringError {
    /// A length is missing, not decimal, has a leading zero or too many digits.
    #[error("a length is not a plain decimal number")]
    Length,
    /// The bytes end inside of a netstring.
    #[error("it ends in the middle")]
    Truncated,
    /// No comma behind a value.
    #[error("a value does not end with a comma")]
    Terminator,
    /// More values than any text may hold.
    #[error("it holds more than {NETSTRINGS_MAX} values")]
    TooMany,
}

/// Splits `bytes` into the values of its netstrings, without copying them. There is one way to write a list, and only
/// that is taken, so equal values mean equal bytes. Errors with [`NetstringError`]; at most 64 values are taken.
pub fn parse_netstrings(bytes: &[u8]) -> Result<Vec<&[u8]>, NetstringError> {
    let (mut rest, mut values) = (bytes, Vec::new());
    while !rest.is_empty() {
        if values.len() == NETSTRINGS_MAX {
            return Err(NetstringError::TooMany);
        }
        values.push(take_netstring(&mut rest)?);
    }
    Ok(values)
}

/// Takes the first value off `rest`.
pub(super) fn take_netstring<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], NetstringError> {
    let (mut after, mut length, mut digits) = (*rest, 0_usize, 0_usize);
    loop {
        let (&byte, behind) = after.split_first().ok_or(NetstringError::Truncated)?;
        after = behind;
        match byte {
            b':' if digits > 0 => break,
            b'0'..=b'9' if digits < LENGTH_DIGITS_MAX && (digits == 0 || length > 0) => {
                length = length * 10 + usize::from(byte - b'0');
                digits += 1;
            }
            _ => return Err(NetstringError::Length),
        }
    }
    let (value, after) = after.split_at_checked(length).ok_or(NetstringError::Truncated)?;
    match after.split_first() {
        Some((b',', after)) => {
            *rest = after;
            Ok(value)
        }
        Some(_) => Err(NetstringError::Terminator),
        None => Err(NetstringError::Truncated),
    }
}

/// The whole number that `text` writes in the one form that is taken in what is signed: digits, without a sign or
/// leading zeros. Otherwise a record would verify as it came and no longer when its values are signed or sent on.
pub(crate) fn plain_number<T: FromStr>(text: &str) -> Option<T> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn env_1_canonical_bytes_match_the_contract() {
        let fields = ["t-1", "alice", "proxy-1", "1796000000000", "op-1"];
        let expected = "9:maitred/1,2:eu,5:claim,3:t-1,5:alice,7:proxy-1,13:1796000000000,4:op-1,";
        assert_eq!(String::from_utf8(canonical("eu", Kind::Claim, &fields)).expect("text"), expected);
    }

    #[test]
    fn env_1_a_number_has_one_form() {
        for good in [0, 1, 10, u64::MAX] {
            assert_eq!(plain_number(&good.to_string()), Some(good));
        }
        for bad in ["", "+1", "-1", "01", "00", " 1", "1 ", "1.0", "1e3", "0x1", "\u{661}", "18446744073709551616"] {
            assert_eq!(plain_number::<u64>(bad), None, "{bad}");
        }
        assert_eq!(plain_number::<u8>("256"), None);
    }

    // ENV-1: a loose parser lets two texts mean one thing, and a signature then covers what nobody signed.
    #[test]
    fn env_1_only_the_one_way_to_write_a_netstring_is_taken() {
        use NetstringError::{Length, Terminator, TooMany, Truncated};
        let good: [(&str, &[&str]); 5] = [
            ("", &[]),
            ("0:,", &[""]),
            ("1:a,", &["a"]),
            ("3:1:a,0:,", &["1:a", ""]),
            ("10:0123456789,", &["0123456789"]),
        ];
        for (text, values) in good {
            let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
            assert_eq!(parse_netstrings(text.as_bytes()), Ok(values), "{text}");
        }
        let bad = [
            (":a,", Length),
            ("01:a,", Length),
            ("00:,", Length),
            ("-1:a,", Length),
            ("+1:a,", Length),
            (" 1:a,", Length),
            ("1 :a,", Length),
            ("1a,", Length),
            ("0000000001:a,", Length),
            ("9999999999:a,", Length),
            ("99999999999999999999999999:a,", Length),
            ("1", Truncated),
            ("1:", Truncated),
            ("1:a", Truncated),
            ("2:a,", Truncated),
            ("999999999:a,", Truncated),
            ("1:a,1", Truncated),
            ("1:ab", Terminator),
            ("0:a,", Terminator),
            (&"0:,".repeat(NETSTRINGS_MAX + 1), TooMany),
        ];
        for (text, error) in bad {
            assert_eq!(parse_netstrings(text.as_bytes()), Err(error), "{text}");
        }
    }

    #[test]
    fn env_6_the_version_is_the_last_field_of_every_kind_that_has_one() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.as_str().as_bytes()), Some(*kind));
            let versions = kind.fields().iter().filter(|field| **field == "v").count();
            assert_eq!(versions, usize::from(kind.fields().last() == Some(&"v")), "{kind:?}");
            assert!(kind.fields().len() + 4 <= NETSTRINGS_MAX);
        }
        assert_eq!(Kind::from_name(b"nodes"), None);
        assert_eq!(super::super::SCHEMA_VERSION.to_string(), super::super::SCHEMA_VERSION_TEXT);
    }

    /// Values that look like the syntax around them, so that smuggling has a chance.
    fn tricky() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(
            prop_oneof![
                prop::collection::vec(prop::sample::select(b"0123:,".to_vec()), 0..12),
                prop::collection::vec(any::<u8>(), 0..120),
            ],
            0..6,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        // ENV-5: anybody with the store's password can publish any bytes; none of them may end the process.
        #[test]
        fn env_5_no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_netstrings(&bytes);
        }

        #[test]
        fn env_5_no_near_miss_makes_the_parser_panic(text in "[0-9:,a]{0,40}") {
            if let Ok(values) = parse_netstrings(text.as_bytes()) {
                let mut again = Vec::new();
                values.iter().for_each(|value| push_netstring(&mut again, value));
                prop_assert_eq!(again, text.as_bytes());
            }
        }

        // ENV-1: two different field lists with the same bytes would share a signature.
        #[test]
        fn env_1_different_fields_have_different_canonical_bytes(a in tricky(), b in tricky()) {
            let (of_a, of_b) = (canonical("eu", Kind::Route, &a), canonical("eu", Kind::Route, &b));
            prop_assert_eq!(a == b, of_a == of_b);
            let values = parse_netstrings(&of_a).expect("what was written can be read");
            prop_assert_eq!(values.get(3..).expect("domain, zone and kind"), a.as_slice());
        }

        #[test]
        fn env_1_moving_a_boundary_changes_the_bytes(joined in "[0-9:,a]{1,20}", cut in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
            let split = |at: usize| { let (a, b) = joined.split_at(at); canonical("eu", Kind::Route, &[a, b]) };
            let (cut, other) = (cut.index(joined.len()), other.index(joined.len()));
            prop_assert_eq!(cut == other, split(cut) == split(other));
        }
    }
}
