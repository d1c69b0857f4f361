//! The secret of the fleet, and the keys that are made from it.

use std::env::VarError;
use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// Least size of a secret after decoding, in bytes.
pub const SECRET_MIN_BYTES: usize = 32;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const UNSET: &str =
    "it is not set; it needs the Base64 of at least 32 random bytes, as `openssl rand -base64 32` prints";
const EMPTY: &str = "it is empty; it needs the Base64 of at least 32 random bytes, as `openssl rand -base64 32` prints";
const NOT_BASE64: &str = "it is not standard Base64 (A-Z a-z 0-9 + /, padding optional)";
const SHORT: &str = "it has fewer than 32 bytes after decoding; `openssl rand -base64 32` prints one that fits";

/// The name of a secret: eight lower-case hexadecimal digits, which stand before each signature made with it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// The eight digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a derived key is for. Each has its own, so that a weakness in one use says nothing about the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Signatures of rows and messages.
    Mac,
    /// Sealing of what a client carries and must not read.
    Seal,
}

impl Purpose {
    fn info(self) -> &'static [u8] {
        match self {
            Self::Mac => b"maitred/1 mac",
            Self::Seal => b"maitred/1 seal",
        }
    }
}

/// The secret that makes a process a member of the fleet: at least [`SECRET_MIN_BYTES`]. Its bytes are zeroised on drop
/// and never printed.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Reads the environment variable `variable`; its form is that of [`Secret::from_base64`]. Errors with
    /// [`Error::Secret`] also where it is not set.
    pub fn from_env(variable: &str) -> Result<Self> {
        match read_env(variable)? {
            Some(text) => Self::from_base64(variable, &text),
            None => Err(refuse(variable, UNSET)),
        }
    }

    /// Decodes standard Base64, with or without padding; blanks around it do not count. `variable` says in the error
    /// where the text came from. Errors with [`Error::Secret`], which never holds the text, where it is empty, malformed
    /// or shorter than [`SECRET_MIN_BYTES`].
    pub fn from_base64(variable: &str, text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Err(refuse(variable, EMPTY));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        BASE64.decode_vec(text, &mut bytes).map_err(|_| refuse(variable, NOT_BASE64))?;
        if bytes.len() < SECRET_MIN_BYTES {
            return Err(refuse(variable, SHORT));
        }
        Ok(Self(bytes))
    }

    /// Every secret of a comma-separated list in the environment variable `variable`; none where it is not set. Errors
    /// with [`Error::Secret`] where one of them is not usable.
    pub(super) fn list_from_env(variable: &str) -> Result<Vec<Self>> {
        match read_env(variable)? {
            Some(text) => Self::list(variable, &text),
            None => Ok(Vec::new()),
        }
    }

    fn list(variable: &str, text: &str) -> Result<Vec<Self>> {
        let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
        entries.map(|entry| Self::from_base64(variable, entry)).collect()
    }

    /// The name under which signatures with this secret are found. It tells nothing about the secret.
    pub fn kid(&self) -> KeyId {
        let digest = Sha256::new().chain_update(b"maitred/1 kid").chain_update(&*self.0).finalize();
        let mut digits = hex::encode(digest);
        digits.truncate(8);
        KeyId(digits)
    }

    /// The key for `purpose`: HKDF-SHA256 without salt.
    #[expect(clippy::expect_used, reason = "HKDF-SHA256 refuses only outputs over 8,160 bytes; this one has 32")]
    pub fn derive(&self, purpose: Purpose) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(None, &self.0).expand(purpose.info(), &mut *key).expect("32 bytes can be derived");
        key
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn refuse(variable: &str, problem: &'static str) -> Error {
    Error::Secret { variable: variable.to_owned(), problem }
}

fn read_env(variable: &str) -> Result<Option<Zeroizing<String>>> {
    match std::env::var(variable) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(refuse(variable, NOT_BASE64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    // ENV-2: a wrong secret is told at the start, in words that help, and without showing it.
    #[test]
    fn env_2_unusable_secrets_are_refused_without_being_shown() {
        let table = [
            ("", "empty"),
            (" \n", "empty"),
            ("not base64!", "not standard Base64"),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh_-", "not standard Base64"),
            ("AAEC AwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "not standard Base64"),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", "fewer than 32 bytes"),
        ];
        for (text, problem) in table {
            let error = Secret::from_base64("MY_SECRET", text).expect_err(text).to_string();
            assert!(error.contains("MY_SECRET") && error.contains(problem), "{text:?}: {error}");
            assert!(text.trim().is_empty() || !error.contains(text.trim()), "the error shows the secret: {error}");
        }
        let missing = Secret::from_env("MAITRED_TEST_NEVER_SET").expect_err("not set").to_string();
        assert!(missing.contains("MAITRED_TEST_NEVER_SET") && missing.contains("not set"), "{missing}");
    }

    #[test]
    fn env_2_padding_and_surrounding_blanks_do_not_matter_and_debug_hides_all() {
        for text in [TEXT, TEXT.trim_end_matches('='), &format!("  {TEXT}\r\n")] {
            let secret = Secret::from_base64("X", text).expect(text);
            assert_eq!(secret.kid().as_str(), "5ebd00f2");
            assert_eq!(format!("{secret:?}"), "Secret(..)");
        }
    }

    // ENV-2: without this the one documented way to hand a secret over could be broken unnoticed.
    #[test]
    fn env_2_secrets_come_from_the_environment() {
        const VARIABLE: &str = "MAITRED_TEST_FROM_ENV";
        if std::env::var_os(VARIABLE).is_some() {
            assert_eq!(Secret::from_env(VARIABLE).expect("usable").kid().as_str(), "5ebd00f2");
            assert_eq!(Secret::list_from_env(VARIABLE).expect("usable").len(), 1);
            return;
        }
        // The environment of a running process cannot be changed safely, so a child runs this test with the variable.
        let name = std::thread::current().name().expect("tests run in threads named after them").to_owned();
        let child = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", &name])
            .env(VARIABLE, TEXT)
            .output()
            .expect("the test starts again");
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    }

    #[test]
    fn env_4_the_list_of_further_secrets_takes_stray_commas_and_refuses_a_bad_entry() {
        assert!(Secret::list("ALSO", " , ").expect("empty").is_empty());
        assert!(Secret::list_from_env("MAITRED_TEST_NEVER_SET").expect("not set").is_empty());
        assert_eq!(Secret::list("ALSO", &format!("{TEXT}, {TEXT},")).expect("two").len(), 2);
        let error = Secret::list("ALSO", &format!("{TEXT},short")).expect_err("one is bad").to_string();
        assert!(error.contains("ALSO") && !error.contains(TEXT), "{error}");
    }

    // ENV-3: the example of the contract; another digit here locks every other implementation out of the fleet.
    #[test]
    fn env_3_keys_and_kid_match_the_contract() {
        let secret = Secret::from_base64("X", TEXT).expect("valid");
        let mac = "1163bba95973d7471a63b2cda1c017c0fd19db351340b7aaf65d1f65e73e757f";
        let seal = "9bfb8eba59afd4e52afff848932f2c62829e6d88bdf3f9427aa5fb6567cb30e6";
        assert_eq!(hex::encode(*secret.derive(Purpose::Mac)), mac);
        assert_eq!(hex::encode(*secret.derive(Purpose::Seal)), seal);
        assert_eq!(secret.kid().to_string(), "5ebd00f2");
    }
}
