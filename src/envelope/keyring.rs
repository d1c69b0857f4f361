//! Signing and verifying.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::canonical::{DOMAIN, Kind, emit_netstring, push_netstring};
use super::seal::{self, OpenFailure, SealKey};
use super::secret::{KeyId, Purpose, Secret};
use crate::error::Result;
use crate::ids::Zone;

/// Length of a signature's text in bytes: short enough that a row of the store keeps its compact form.
pub const SIGNATURE_BYTES: usize = KID_BYTES + 1 + MAC_CHARS;

const KID_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
const MAC_CHARS: usize = 43;

/// The text `<kid>.<43 characters of unpadded base64url>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Signature(String);

impl Signature {
    /// The text, [`SIGNATURE_BYTES`] long.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Signature {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<Signature> for String {
    fn from(signature: Signature) -> Self {
        signature.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a signature is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyFailure {
    /// There is none.
    #[error("it is not signed")]
    Missing,
    /// The text is not of the form `<kid>.<43 characters of base64url>`.
    #[error("its signature is malformed")]
    Malformed,
    /// Signed with a secret that this process does not hold.
    #[error("it is signed with a key that is not known here")]
    UnknownKey,
    /// Not what a member signed.
    #[error("its signature does not fit")]
    BadSignature,
}

/// One secret, ready to use: the MAC has taken the key, the domain and the zone already, so that each signature starts
/// from a copy.
#[derive(Clone)]
struct Key {
    kid: KeyId,
    mac: Hmac<Sha256>,
    seal: SealKey,
}

impl Key {
    fn new(secret: &Secret, prefix: &[u8]) -> Self {
        // HMAC pads a short key with zeros to a block of 64 bytes.
        let mut block = Zeroizing::new([0; 64]);
        block.iter_mut().zip(secret.derive(Purpose::Mac).iter()).for_each(|(to, from)| *to = *from);
        let mut mac = Hmac::new((&*block).into());
        mac.update(prefix);
        Self { kid: secret.kid(), mac, seal: SealKey::new(secret) }
    }

    fn finish(&self, mac: Hmac<Sha256>) -> Signature {
        let mut text = String::with_capacity(SIGNATURE_BYTES);
        text.push_str(self.kid.as_str());
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(mac.finalize().into_bytes(), &mut text);
        Signature(text)
    }
}

/// The keys of one zone: one that signs, and those that are accepted as well while the secret changes. The secrets
/// themselves are gone once it is made.
#[derive(Clone)]
pub struct Keyring {
    zone: Zone,
    prefix: Vec<u8>,
    current: Key,
    also: Vec<Key>,
}

impl Keyring {
    /// Signs with `secret`; verifies with it and with each of `also`.
    pub fn new(zone: Zone, secret: Secret, also: Vec<Secret>) -> Self {
        let mut prefix = Vec::new();
        push_netstring(&mut prefix, DOMAIN.as_bytes());
        push_netstring(&mut prefix, zone.as_str().as_bytes());
        let current = Key::new(&secret, &prefix);
        let mut others: Vec<Key> = Vec::new();
        for key in also.iter().map(|secret| Key::new(secret, &prefix)) {
            if key.kid != current.kid && others.iter().all(|other| other.kid != key.kid) {
                others.push(key);
            }
        }
        Self { zone, prefix, current, also: others }
    }

    /// Reads the secret from the environment variable `variable` and the further ones, comma-separated, from
    /// `also_variable`, which may be unset. Errors with [`Error::Secret`](crate::Error::Secret).
    pub fn from_env(zone: Zone, variable: &str, also_variable: &str) -> Result<Self> {
        Ok(Self::new(zone, Secret::from_env(variable)?, Secret::list_from_env(also_variable)?))
    }

    /// The zone that signatures are made for.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The key that signs.
    pub fn kid(&self) -> &KeyId {
        &self.current.kid
    }

    /// The keys that are accepted, the signing one first.
    pub fn accepted_kids(&self) -> Vec<KeyId> {
        self.keys().map(|key| key.kid.clone()).collect()
    }

    /// Signs `fields`, the values of [`Kind::fields`] in that order. A wrong number of them is a defect of the caller
    /// (checked in debug builds): nobody would ever verify it.
    pub fn sign(&self, kind: Kind, fields: &[&str]) -> Signature {
        self.current.finish(feed(&self.current, kind, fields))
    }

    /// Checks that a member signed exactly `fields` for this zone and `kind`; `signature` is the text, empty where there
    /// is none. Constant in time over the signature's bytes.
    pub fn verify(&self, kind: Kind, fields: &[&str], signature: &str) -> Result<(), VerifyFailure> {
        self.verify_with(signature.as_bytes(), |key| feed(key, kind, fields))
    }

    /// Seals `plain` for whoever holds the secret and this zone: nobody else reads or changes it. The text is
    /// `<kid>.<base64url>` without padding; `purpose` is bound to it, so that what was sealed for one use opens for no
    /// other.
    pub fn seal(&self, purpose: &str, plain: &[u8]) -> String {
        let mut text = self.current.kid.as_str().to_owned();
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(self.current.seal.seal(&self.sealed_for(purpose), plain), &mut text);
        text
    }

    /// Opens what [`Keyring::seal`] made, with the current secret or one that is accepted as well.
    pub fn open(&self, purpose: &str, text: &str) -> Result<Vec<u8>, OpenFailure> {
        let (kid, sealed) = seal::split(text).ok_or(OpenFailure::Malformed)?;
        let key = self.keys().find(|key| key.kid.as_str() == kid).ok_or(OpenFailure::UnknownKey)?;
        key.seal.open(&self.sealed_for(purpose), &sealed).ok_or(OpenFailure::NotOpened)
    }

    /// What is authenticated beside the sealed bytes: domain, zone and purpose.
    fn sealed_for(&self, purpose: &str) -> Vec<u8> {
        let mut bound = self.prefix.clone();
        push_netstring(&mut bound, purpose.as_bytes());
        bound
    }

    /// Bytes that every canonical text of this zone starts with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Signs the canonical text whose bytes behind [`Keyring::prefix`] are `rest`.
    pub(super) fn sign_rest(&self, rest: &[u8]) -> Signature {
        self.current.finish(self.current.mac.clone().chain_update(rest))
    }

    /// Verifies the canonical text whose bytes behind [`Keyring::prefix`] are `rest`.
    pub(super) fn verify_rest(&self, rest: &[u8], signature: &[u8]) -> Result<(), VerifyFailure> {
        self.verify_with(signature, |key| key.mac.clone().chain_update(rest))
    }

    fn verify_with(&self, signature: &[u8], mac: impl FnOnce(&Key) -> Hmac<Sha256>) -> Result<(), VerifyFailure> {
        if signature.is_empty() {
            return Err(VerifyFailure::Missing);
        }
        let (kid, tag) = split_signature(signature).ok_or(VerifyFailure::Malformed)?;
        let key = self.keys().find(|key| key.kid.as_str().as_bytes() == kid).ok_or(VerifyFailure::UnknownKey)?;
        mac(key).verify_slice(&tag).map_err(|_| VerifyFailure::BadSignature)
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.current).chain(&self.also)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("zone", &self.zone).field("kids", &self.accepted_kids()).finish()
    }
}

/// The MAC over kind and fields, without building their bytes first.
fn feed(key: &Key, kind: Kind, fields: &[&str]) -> Hmac<Sha256> {
    debug_assert_eq!(fields.len(), kind.fields().len(), "fields of a {}: {:?}", kind.as_str(), kind.fields());
    let mut mac = key.mac.clone();
    emit_netstring(kind.as_str().as_bytes(), |piece| mac.update(piece));
    for field in fields {
        emit_netstring(field.as_bytes(), |piece| mac.update(piece));
    }
    mac
}

/// Key id and MAC of a signature's text; `None` for every other form, so that each MAC has one text only.
fn split_signature(text: &[u8]) -> Option<(&[u8], [u8; MAC_BYTES])> {
    let (kid, rest) = text.split_at_checked(KID_BYTES)?;
    let chars = rest.strip_prefix(b".")?;
    if chars.len() != MAC_CHARS || !kid.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    // The decoder wants room for whole groups of four characters.
    let mut decoded = [0; MAC_BYTES + 1];
    let length = URL_SAFE_NO_PAD.decode_slice(chars, &mut decoded).ok()?;
    let tag = decoded.get(..length)?.try_into().ok()?;
    Some((kid, tag))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A secret of 32 times `byte`.
    pub fn secret(byte: u8) -> Secret {
        let text = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
        Secret::from_base64("TEST", &text).expect("32 bytes")
    }

    pub fn keyring(zone: &str, byte: u8, also: &[u8]) -> Keyring {
        Keyring::new(Zone::new(zone).expect("zone"), secret(byte), also.iter().map(|byte| secret(*byte)).collect())
    }

    const FIELDS: [&str; 5] = ["t-1", "alice", "proxy-1", "1796000000000", "op-1"];

    // ENV-5: each of these is data that no member wrote for this place; taking it would act on it.
    #[test]
    fn env_5_what_a_member_did_not_sign_is_refused_with_its_reason() {
        let ours = keyring("eu", 1, &[]);
        let good = ours.sign(Kind::Claim, &FIELDS).to_string();
        assert_eq!(good.len(), SIGNATURE_BYTES);
        assert_eq!(ours.verify(Kind::Claim, &FIELDS, &good), Ok(()));

        let changed = ["t-1", "bob", "proxy-1", "1796000000000", "op-1"];
        let moved = ["t-1a", "lice", "proxy-1", "1796000000000", "op-1"];
        assert_eq!(ours.verify(Kind::Claim, &changed, &good), Err(VerifyFailure::BadSignature));
        assert_eq!(ours.verify(Kind::Claim, &moved, &good), Err(VerifyFailure::BadSignature));
        let elsewhere = keyring("us", 1, &[]).sign(Kind::Claim, &FIELDS);
        assert_eq!(ours.verify(Kind::Claim, &FIELDS, elsewhere.as_str()), Err(VerifyFailure::BadSignature));
        let route = ["world", "w-1", "b-1", "7", "9", "1"];
        let pass_like = ours.sign(Kind::Route, &route);
        assert_eq!(ours.verify(Kind::Control, &route, pass_like.as_str()), Err(VerifyFailure::BadSignature));
        let stranger = keyring("eu", 2, &[]).sign(Kind::Claim, &FIELDS);
        assert_eq!(ours.verify(Kind::Claim, &FIELDS, stranger.as_str()), Err(VerifyFailure::UnknownKey));
        assert_eq!(ours.verify(Kind::Claim, &FIELDS, ""), Err(VerifyFailure::Missing));
    }

    #[test]
    fn env_5_a_signature_has_one_text_only() {
        let ours = keyring("eu", 1, &[]);
        let good = ours.sign(Kind::Claim, &FIELDS).to_string();
        let (kid, tag) = good.split_once('.').expect("kid and tag");
        // The last character carries four bits of the MAC and two that must be zero.
        let last = tag.chars().last().expect("43 characters");
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let unclean = alphabet.chars().nth(alphabet.find(last).expect("in it") + 1).expect("not the last");
        let table = [
            format!("{good}="),
            format!(" {good}"),
            format!("{good}\n"),
            good.replace('.', ":"),
            format!("{}.{tag}", kid.to_uppercase().replace(char::is_numeric, "A")),
            format!("{kid}.{}", &tag[1..]),
            format!("{kid}.{}{unclean}", &tag[..42]),
            format!("{kid}.{}", "+".repeat(43)),
            format!("{kid}.{}", "é".repeat(21) + "a"),
            "x".to_owned(),
            "é".repeat(26),
        ];
        for text in table {
            assert_eq!(ours.verify(Kind::Claim, &FIELDS, &text), Err(VerifyFailure::Malformed), "{text}");
        }
    }

    // ENV-4, R-29: while the secret changes, both halves of the fleet must believe each other.
    #[test]
    fn env_4_further_secrets_verify_and_never_sign() {
        let (old, new) = (keyring("eu", 1, &[2, 2, 1]), keyring("eu", 2, &[1]));
        assert_eq!(old.accepted_kids(), [secret(1).kid(), secret(2).kid()]);
        assert_eq!(old.kid(), &secret(1).kid());
        let (by_old, by_new) = (old.sign(Kind::Claim, &FIELDS), new.sign(Kind::Claim, &FIELDS));
        assert!(by_new.as_str().starts_with(new.kid().as_str()));
        assert_eq!(old.verify(Kind::Claim, &FIELDS, by_new.as_str()), Ok(()));
        assert_eq!(new.verify(Kind::Claim, &FIELDS, by_old.as_str()), Ok(()));
        let after = keyring("eu", 2, &[]);
        assert_eq!(after.verify(Kind::Claim, &FIELDS, by_old.as_str()), Err(VerifyFailure::UnknownKey));
    }

    #[test]
    fn env_2_debug_shows_the_zone_and_the_key_ids_only() {
        let text = format!("{:?}", keyring("eu", 1, &[2]));
        assert_eq!(text, format!("Keyring {{ zone: \"eu\", kids: [{}, {}] }}", secret(1).kid(), secret(2).kid()));
    }

    #[test]
    fn env_2_a_keyring_needs_its_variable() {
        let zone = Zone::new("eu").expect("zone");
        let error = Keyring::from_env(zone, "MAITRED_TEST_NEVER_SET", "MAITRED_TEST_NEVER_SET").expect_err("not set");
        assert!(error.to_string().contains("MAITRED_TEST_NEVER_SET"), "{error}");
    }
}
