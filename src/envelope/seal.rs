//! Sealing of what a client carries: XChaCha20-Poly1305 with the sealing key, the zone bound to it.
//!
//! The text is `<kid>.<base64url without padding of nonce (24 bytes), ciphertext and tag (16 bytes)>`. Authenticated beside
//! it are the netstrings of `maitred/1`, the zone and the purpose.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::secret::{Purpose, Secret};

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Longest sealed text that is looked at, in bytes: far above any pass.
const TEXT_MAX_BYTES: usize = 4_096;

/// Why a sealed text does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenFailure {
    /// It is not of the form `<kid>.<base64url>`.
    #[error("it is not a sealed text")]
    Malformed,
    /// It was sealed with a secret that this process does not hold.
    #[error("it is sealed with a key that is not known here")]
    UnknownKey,
    /// It was changed, or sealed for another zone or use.
    #[error("it does not open")]
    NotOpened,
}

/// The sealing key of one secret. Its bytes are zeroised when the last copy goes.
#[derive(Clone)]
pub(super) struct SealKey(Arc<Zeroizing<[u8; 32]>>);

impl SealKey {
    pub fn new(secret: &Secret) -> Self {
        Self(Arc::new(secret.derive(Purpose::Seal)))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&**self.0).into())
    }

    /// Nonce, ciphertext and tag. The nonce is random: 24 bytes never meet twice.
    pub fn seal(&self, bound: &[u8], plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let mut sealed = nonce.to_vec();
        // Only a text of 256 GiB is refused.
        sealed.extend(self.encrypt(&nonce, bound, plain).unwrap_or_default());
        sealed
    }

    fn encrypt(&self, nonce: &[u8; NONCE_BYTES], bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        self.cipher().encrypt(XNonce::from_slice(nonce), Payload { msg: plain, aad: bound }).ok()
    }

    pub fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_BYTES)?;
        if rest.len() < TAG_BYTES {
            return None;
        }
        self.cipher().decrypt(XNonce::from_slice(nonce), Payload { msg: rest, aad: bound }).ok()
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// Key id and sealed bytes of a text; `None` for every other form.
pub(super) fn split(text: &str) -> Option<(&str, Vec<u8>)> {
    if text.len() > TEXT_MAX_BYTES {
        return None;
    }
    let (kid, rest) = text.split_once('.')?;
    let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if kid.len() != 8 || !kid.bytes().all(hexadecimal) {
        return None;
    }
    Some((kid, URL_SAFE_NO_PAD.decode(rest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::keyring::tests::keyring;
    use super::*;

    // QUE-7: a client that changes or reads its pass would let itself in.
    #[test]
    fn que_7_only_what_was_sealed_for_this_zone_and_use_opens() {
        let ours = keyring("eu", 1, &[]);
        let text = ours.seal("pass", b"alice goes to b1");
        assert_eq!(ours.open("pass", &text).as_deref(), Ok(&b"alice goes to b1"[..]));
        assert!(!text.contains("alice") && text.starts_with(ours.kid().as_str()));
        assert_ne!(text, ours.seal("pass", b"alice goes to b1"), "the same pass twice looks different");
        assert_eq!(ours.open("note", &text), Err(OpenFailure::NotOpened));
        assert_eq!(keyring("us", 1, &[]).open("pass", &text), Err(OpenFailure::NotOpened));
        assert_eq!(keyring("eu", 2, &[]).open("pass", &text), Err(OpenFailure::UnknownKey));
        for bad in ["", ".", "5ebd00f2", "5ebd00f2.", "XXXXXXXX.AAAA", &text.replace('.', ":"), &format!("{text}=")] {
            assert!(ours.open("pass", bad).is_err(), "{bad}");
        }
    }

    // ENV-4: while the secret changes, a pass that somebody carries stays good.
    #[test]
    fn env_4_a_former_secret_opens_and_does_not_seal() {
        let by_old = keyring("eu", 1, &[]).seal("pass", b"x");
        let rotating = keyring("eu", 2, &[1]);
        assert_eq!(rotating.open("pass", &by_old).as_deref(), Ok(&b"x"[..]));
        assert!(rotating.seal("pass", b"x").starts_with(rotating.kid().as_str()));
    }

    // The values of draft-irtf-cfrg-xchacha-03, A.3.1, with our own key and nonce handling around them.
    #[test]
    fn xchacha20_poly1305_is_the_one_of_the_draft() {
        let key: Vec<u8> = (0x80..0xa0).collect();
        let nonce: Vec<u8> = (0x40..0x58).collect();
        let bound = hex::decode("50515253c0c1c2c3c4c5c6c7").expect("hex");
        let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
            sunscreen would be it.";
        let key = SealKey(Arc::new(Zeroizing::new(key.try_into().expect("32 bytes"))));
        let sealed = key.encrypt(&nonce.clone().try_into().expect("24 bytes"), &bound, plain).expect("short");
        let tag = "c0875924c1c7987947deafd8780acf49";
        assert_eq!(hex::encode(&sealed[sealed.len() - TAG_BYTES..]), tag);
        let whole = [nonce, sealed].concat();
        assert_eq!(key.open(&bound, &whole).as_deref(), Some(&plain[..]));
    }
}
