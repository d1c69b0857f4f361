//! What makes a row or message of the fleet believable: every record that another node acts on is signed with a key that
//! only members hold. Everything here is pure: bytes, text and times come in, values go out.
//!
//! ```text
//! MAITRED_SECRET ──HKDF-SHA256──► mac key ─┐
//!                                          ▼
//! 9:maitred/1,2:eu,5:claim,3:t-1,… ──HMAC-SHA256──► 5ebd00f2.gcj4pOlQTC…
//! └ domain ──┘└zone┘└─kind┘└ fields           └ key id └ 43 of base64url
//! ```
//!
//! - **Canonical bytes** ([`canonical()`]): the netstrings of `maitred/1`, zone, kind ([`Kind`]), then the fields of the
//!   kind in the order of [`Kind::fields`]. A length stands before each value, so no value can pretend to be two.
//! - **A row** of the store holds its fields and, as `sig`, the text of a [`Signature`]: [`Keyring::sign`] and
//!   [`Keyring::verify`].
//! - **The wire form** of what is published (messages, heartbeats) is the canonical bytes followed by the signature as
//!   one more netstring: [`Keyring::to_wire`] and [`Keyring::from_wire`]. The receiver checks the bytes as they came.
//! - **What a client carries** and must not read or change is sealed: [`Keyring::seal`] and [`Keyring::open`].
//! - **Replays** of messages meet a [`ReplayWindow`]; of rows, the epoch, version and time inside of them.
//! - **What is dropped** is told to the [`Audit`], which counts it by reason and warns at a bounded rate.
//!
//! A signature proves that a member of the fleet wrote the fields for this zone and kind. It does not prove which member,
//! that the row lies under the key it was written to (whoever reads a key compares the ids inside with the name), nor
//! that nothing newer exists.
//!
//! ```
//! use maitred::envelope::{Keyring, Kind, Secret};
//! use maitred::ids::Zone;
//!
//! let secret = Secret::from_base64("MAITRED_SECRET", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")?;
//! let keyring = Keyring::new(Zone::new("eu")?, secret, Vec::new());
//! let fields = ["t-1", "alice", "proxy-1", "1796000000000", "op-1"];
//! let signature = keyring.sign(Kind::Claim, &fields);
//! assert_eq!(signature.as_str(), "5ebd00f2.gcj4pOlQTCupGXNs2rL1d0lpqYHpUok1Q8a6xX3j6tg");
//! assert!(keyring.verify(Kind::Claim, &fields, signature.as_str()).is_ok());
//! # Ok::<(), maitred::Error>(())
//! ```

mod audit;
mod canonical;
mod keyring;
mod replay;
mod seal;
mod secret;
mod wire;

pub use audit::{Audit, AuditReason};
pub(crate) use canonical::DOMAIN;
pub(crate) use canonical::plain_number;
pub use canonical::{Kind, NetstringError, canonical, parse_netstrings, push_netstring};
pub use keyring::{Keyring, SIGNATURE_BYTES, Signature, VerifyFailure};
pub use replay::{REPLAY_WINDOW_MS, ReplayRefusal, ReplayWindow};
pub use seal::OpenFailure;
pub use secret::{KeyId, Purpose, SECRET_MIN_BYTES, Secret};
pub use wire::{Wire, WireFailure};

/// The version of every record and message that this build writes and understands: the field `v`.
pub(crate) const SCHEMA_VERSION: u32 = 1;
/// `SCHEMA_VERSION` as the field `v` holds it.
pub const SCHEMA_VERSION_TEXT: &str = "1";
