//! The form in which signed records travel over pub/sub: `<canonical bytes>52:<signature>,`.

use super::canonical::{
    Kind, NETSTRINGS_MAX, NetstringError, canonical, parse_netstrings, push_netstring, take_netstring,
};
use super::keyring::{Keyring, SIGNATURE_BYTES, VerifyFailure};
use super::{DOMAIN, SCHEMA_VERSION_TEXT};

/// Bytes before and behind the signature in its netstring.
const SIGNATURE_HEAD: &[u8] = b"52:";
const SIGNATURE_TAIL: &[u8] = b",";

/// A verified record, borrowed from the bytes it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire<'a> {
    /// What it is.
    pub kind: Kind,
    /// The values of [`Kind::fields`], in that order and exactly as many.
    pub fields: Vec<&'a str>,
}

/// Why bytes off the wire are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireFailure {
    /// More bytes than the receiver takes; none were looked at.
    #[error("it has {bytes} bytes, allowed are {max_bytes}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// Not a list of netstrings.
    #[error("it is malformed: {0}")]
    Netstring(#[from] NetstringError),
    /// It does not start with `maitred/1`.
    #[error("it is not of this protocol")]
    Domain,
    /// Made for another zone.
    #[error("it is of another zone")]
    Zone,
    /// The signature is missing or does not fit.
    #[error(transparent)]
    Signature(#[from] VerifyFailure),
    /// A member signed it, of a kind that this build does not know.
    #[error("it is of a kind that is not known here")]
    Kind,
    /// A member signed it, of a schema version that this build does not know.
    #[error("it is of schema version {version}")]
    SchemaVersion {
        /// The version found, cut to 20 characters.
        version: String,
    },
    /// A member signed it, with another number of fields than its kind has.
    #[error("it has another number of fields than its kind")]
    FieldCount,
    /// A member signed it, but a field is not UTF-8.
    #[error("a field is not UTF-8")]
    NotUtf8,
}

impl Keyring {
    /// `fields` (the values of [`Kind::fields`]) signed and ready to publish. A wrong number of fields is a defect of the
    /// caller (checked in debug builds): receivers refuse it.
    pub fn to_wire(&self, kind: Kind, fields: &[&str]) -> Vec<u8> {
        debug_assert_eq!(fields.len(), kind.fields().len(), "fields of a {}: {:?}", kind.as_str(), kind.fields());
        let mut bytes = canonical(self.zone().as_str(), kind, fields);
        let signature = self.sign_rest(bytes.get(self.prefix().len()..).unwrap_or_default());
        push_netstring(&mut bytes, signature.as_str().as_bytes());
        bytes
    }

    /// Takes what [`Keyring::to_wire`] of a member of this zone made, at most `max_bytes` long, and borrows its fields.
    ///
    /// The signature is checked over the bytes as they came, before anything of them is interpreted; that also lets a
    /// record of a later version be named as such although its fields are other ones. Errors with [`WireFailure`].
    pub fn from_wire<'a>(&self, bytes: &'a [u8], max_bytes: usize) -> Result<Wire<'a>, WireFailure> {
        if bytes.len() > max_bytes {
            return Err(WireFailure::TooLarge { bytes: bytes.len(), max_bytes });
        }
        let Some((body, signature)) = split_tail(bytes) else {
            return Err(without_signature(bytes));
        };
        let Some(rest) = body.strip_prefix(self.prefix()) else {
            return Err(foreign(body));
        };
        self.verify_rest(rest, signature)?;
        read(rest)
    }
}

/// Cuts the signature off the end. Its length is fixed, so nothing before it has to be read to find it.
fn split_tail(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let tail = SIGNATURE_HEAD.len() + SIGNATURE_BYTES + SIGNATURE_TAIL.len();
    let (body, tail) = bytes.split_at_checked(bytes.len().checked_sub(tail)?)?;
    Some((body, tail.strip_prefix(SIGNATURE_HEAD)?.strip_suffix(SIGNATURE_TAIL)?))
}

/// Why `bytes`, which do not end in a signature, are refused.
fn without_signature(bytes: &[u8]) -> WireFailure {
    match parse_netstrings(bytes) {
        Ok(_) => WireFailure::Signature(VerifyFailure::Missing),
        Err(error) => WireFailure::Netstring(error),
    }
}

/// Why `body`, which does not start like this zone's texts, is refused.
fn foreign(mut body: &[u8]) -> WireFailure {
    match take_netstring(&mut body) {
        Err(error) => WireFailure::Netstring(error),
        Ok(domain) if domain != DOMAIN.as_bytes() => WireFailure::Domain,
        Ok(_) => WireFailure::Zone,
    }
}

/// Reads kind and fields of a verified text; `rest` starts behind the zone.
fn read(mut rest: &[u8]) -> Result<Wire<'_>, WireFailure> {
    let kind = Kind::from_name(take_netstring(&mut rest)?).ok_or(WireFailure::Kind)?;
    let names = kind.fields();
    let mut fields = Vec::with_capacity(names.len());
    while !rest.is_empty() {
        if fields.len() == NETSTRINGS_MAX {
            return Err(NetstringError::TooMany.into());
        }
        fields.push(std::str::from_utf8(take_netstring(&mut rest)?).map_err(|_| WireFailure::NotUtf8)?);
    }
    if let (Some(&"v"), Some(&version)) = (names.last(), fields.last())
        && version != SCHEMA_VERSION_TEXT
    {
        return Err(WireFailure::SchemaVersion { version: version.chars().take(20).collect() });
    }
    if fields.len() != names.len() {
        return Err(WireFailure::FieldCount);
    }
    Ok(Wire { kind, fields })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keyring::tests::keyring;
    use super::*;

    const MAX: usize = 4_096;
    const CONTROL: [&str; 6] = ["kill", "on", "1796000000001", "ops", "1796000000000", "1"];

    /// Signs what a member of another build could send, which `to_wire` would not make.
    fn signed(ours: &Keyring, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = ours.prefix().to_vec();
        parts.iter().for_each(|part| push_netstring(&mut bytes, part));
        let signature = ours.sign_rest(&bytes[ours.prefix().len()..]);
        push_netstring(&mut bytes, signature.as_str().as_bytes());
        bytes
    }

    #[test]
    fn env_1_the_wire_form_is_the_canonical_bytes_and_the_signature() {
        let ours = keyring("eu", 1, &[]);
        let mut expected = canonical("eu", Kind::Control, &CONTROL);
        push_netstring(&mut expected, ours.sign(Kind::Control, &CONTROL).as_str().as_bytes());
        assert_eq!(ours.to_wire(Kind::Control, &CONTROL), expected);
    }

    // ENV-5: what is refused has to say why, or an operator cannot tell an attack from a wrong config.
    #[test]
    fn env_5_each_refusal_has_its_reason() {
        let ours = keyring("eu", 1, &[]);
        let good = ours.to_wire(Kind::Control, &CONTROL);
        let missing = canonical("eu", Kind::Control, &CONTROL);
        let mut other_domain = good.clone();
        other_domain[10] = b'2';
        let mut forged = good.clone();
        forged[missing.len() - 3] = b'2';
        let table: [(&[u8], WireFailure); 9] = [
            (b"", WireFailure::Signature(VerifyFailure::Missing)),
            (b"hello", WireFailure::Netstring(NetstringError::Length)),
            (&missing, WireFailure::Signature(VerifyFailure::Missing)),
            (&good[..good.len() - 1], WireFailure::Netstring(NetstringError::Truncated)),
            (&good[1..], WireFailure::Netstring(NetstringError::Length)),
            (&other_domain, WireFailure::Domain),
            (&keyring("us", 1, &[]).to_wire(Kind::Control, &CONTROL), WireFailure::Zone),
            (&keyring("eu", 2, &[]).to_wire(Kind::Control, &CONTROL), VerifyFailure::UnknownKey.into()),
            (&forged, VerifyFailure::BadSignature.into()),
        ];
        for (bytes, failure) in table {
            assert_eq!(ours.from_wire(bytes, MAX), Err(failure), "{}", String::from_utf8_lossy(bytes));
        }
        let limit = good.len() - 1;
        let too_large = WireFailure::TooLarge { bytes: good.len(), max_bytes: limit };
        assert_eq!(ours.from_wire(&good, limit), Err(too_large));
        assert!(ours.from_wire(&good, good.len()).is_ok());
    }

    // ENV-6: during an upgrade the older half must name the version, not report an attack.
    #[test]
    fn env_6_a_later_version_is_named_even_with_other_fields() {
        let ours = keyring("eu", 1, &[]);
        let version = |text: &str| Err(WireFailure::SchemaVersion { version: text.to_owned() });
        assert_eq!(ours.from_wire(&signed(&ours, &[b"control", b"a", b"b", b"2"]), MAX), version("2"));
        let same_shape = ["kill", "on", "1", "ops", "2", "2"];
        assert_eq!(ours.from_wire(&ours.to_wire(Kind::Control, &same_shape), MAX), version("2"));
        let short: [&[u8]; 3] = [b"control", b"kill", b"1"];
        assert_eq!(ours.from_wire(&signed(&ours, &short), MAX), Err(WireFailure::FieldCount));
        assert_eq!(ours.from_wire(&signed(&ours, &[b"control"]), MAX), Err(WireFailure::FieldCount));
        assert_eq!(ours.from_wire(&signed(&ours, &[b"dance", b"1"]), MAX), Err(WireFailure::Kind));
        assert_eq!(ours.from_wire(&signed(&ours, &[b"control", b"\xff"]), MAX), Err(WireFailure::NotUtf8));
        let many: Vec<&[u8]> = std::iter::once(b"control".as_slice()).chain([b"1".as_slice(); 65]).collect();
        assert_eq!(ours.from_wire(&signed(&ours, &many), MAX), Err(NetstringError::TooMany.into()));
    }

    fn record() -> impl Strategy<Value = (Kind, Vec<String>)> {
        prop::sample::select(Kind::ALL.to_vec()).prop_flat_map(|kind| {
            let fields = prop::collection::vec(prop_oneof!["[0-9:,]{0,8}", "\\PC{0,12}"], kind.fields().len());
            fields.prop_map(move |mut fields| {
                if kind.fields().last() == Some(&"v") {
                    fields.pop();
                    fields.push(SCHEMA_VERSION_TEXT.to_owned());
                }
                (kind, fields)
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn env_1_what_is_sent_is_what_arrives((kind, fields) in record()) {
            let ours = keyring("eu", 1, &[]);
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let bytes = ours.to_wire(kind, &fields);
            let wire = ours.from_wire(&bytes, bytes.len()).expect("a member signed it");
            prop_assert_eq!(wire, Wire { kind, fields });
        }

        // ENV-5: a relay that changes anything at all must be noticed.
        #[test]
        fn env_5_one_changed_byte_anywhere_is_refused(
            (kind, fields) in record(), at in any::<prop::sample::Index>(), flip in 1_u8..=255
        ) {
            let ours = keyring("eu", 1, &[2]);
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let mut bytes = ours.to_wire(kind, &fields);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(ours.from_wire(&bytes, bytes.len()).is_err(), "byte {} of {}", at, bytes.len());
        }

        #[test]
        fn env_5_no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9:,a]{0,80}") {
            let ours = keyring("eu", 1, &[]);
            prop_assert!(ours.from_wire(&bytes, MAX).is_err());
            let mut near = ours.prefix().to_vec();
            near.extend_from_slice(text.as_bytes());
            push_netstring(&mut near, ours.sign_rest(text.as_bytes()).as_str().as_bytes());
            prop_assert!(ours.from_wire(&near, MAX).is_err());
        }
    }
}
