use serde_json::value::RawValue;

use crate::envelope::{Keyring, Kind, REPLAY_WINDOW_MS, SCHEMA_VERSION_TEXT, plain_number};
use crate::ids::{Epoch, NAME_MAX_BYTES, NodeId};

use super::services::is_service_text;

/// A message's deadline lies less than this after its sent time, in ms: a receiver that forgot the message after the
/// replay window could not start a handler for it any more.
pub const MESSAGE_LIFE_MS: u64 = REPLAY_WINDOW_MS;
/// Longest wire form of a message or reply without its body, in bytes.
pub(super) const HEAD_MAX_BYTES: usize = 4_096;
/// Longest text of a route, in bytes: `<version>:<kind>:<object>` has at most 214.
const ROUTE_MAX_BYTES: usize = 256;

/// A call or send to a service, borrowed from the texts around it.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// Who wants it done; the answer goes there.
    pub origin: NodeId,
    /// The origin's epoch.
    pub origin_epoch: Epoch,
    /// Who sent and signed this copy: the origin, or a forwarder.
    pub from: NodeId,
    /// The sender's epoch.
    pub from_epoch: Epoch,
    /// The addressee.
    pub to: NodeId,
    /// The addressee's epoch: another incarnation of the node does not take it.
    pub to_epoch: Epoch,
    /// The service, 1 to 128 bytes of `[A-Za-z0-9._:-]`.
    pub service: &'a str,
    /// The method, 1 to 128 bytes of `[A-Za-z0-9._:-]`.
    pub method: &'a str,
    /// Id of the call, empty for a one-way send.
    pub call: &'a str,
    /// How often it was forwarded.
    pub hops: u32,
    /// The route it goes by, empty where it names its node.
    pub route: &'a str,
    /// When the origin sent it, in store ms.
    pub sent_at_ms: u64,
    /// Random; together with the origin and the hops it is taken once.
    pub nonce: &'a str,
    /// No handler starts at or after this time, in store ms. Less than 30 s after `sent_at_ms`.
    pub deadline_ms: u64,
    /// JSON.
    pub body: &'a RawValue,
}

/// The answer to a call, borrowed from the texts around it.
#[derive(Debug, Clone)]
pub struct Reply<'a> {
    /// Id of the call.
    pub call: &'a str,
    /// Who answers.
    pub from: NodeId,
    /// The epoch that was asked and answers.
    pub from_epoch: Epoch,
    /// The origin of the call.
    pub to: NodeId,
    /// The origin's epoch.
    pub to_epoch: Epoch,
    /// `ok`; `error`, the callee's own; or what kept the callee from an answer: `busy`, `service_not_found`,
    /// `shutting_down`, `internal`, `reply_too_large`, `cancelled`.
    pub status: &'a str,
    /// When it was sent, in store ms.
    pub sent_at_ms: u64,
    /// Random.
    pub nonce: &'a str,
    /// JSON: the answer for `ok`, else `{"message":…}`, with the callee's `"code"` for `error`.
    pub body: &'a RawValue,
}

impl<'a> Message<'a> {
    /// True where somebody waits for an answer.
    pub fn is_call(&self) -> bool {
        !self.call.is_empty()
    }

    /// Signed and ready to publish.
    pub fn to_wire(&self, keyring: &Keyring) -> Vec<u8> {
        let fields = [
            self.origin.as_str(),
            &self.origin_epoch.to_string(),
            self.from.as_str(),
            &self.from_epoch.to_string(),
            self.to.as_str(),
            &self.to_epoch.to_string(),
            self.service,
            self.method,
            self.call,
            &self.hops.to_string(),
            self.route,
            &self.sent_at_ms.to_string(),
            self.nonce,
            &self.deadline_ms.to_string(),
            self.body.get(),
            SCHEMA_VERSION_TEXT,
        ];
        keyring.to_wire(Kind::Message, &fields)
    }

    /// Reads verified `fields`, in the order of [`Kind::fields`]. `None` where one of them does not fit its type, where
    /// the deadline is not in the 30 s after the sent time, or where a message that was not forwarded has another
    /// sender than its origin.
    pub fn from_fields(fields: &[&'a str]) -> Option<Self> {
        let &[
            origin,
            origin_epoch,
            from,
            from_epoch,
            to,
            to_epoch,
            service,
            method,
            call,
            hops,
            route,
            sent_at,
            nonce,
            deadline,
            body,
            _version,
        ] = fields
        else {
            return None;
        };
        let message = Self {
            origin: NodeId::new(origin).ok()?,
            origin_epoch: Epoch(plain_number(origin_epoch)?),
            from: NodeId::new(from).ok()?,
            from_epoch: Epoch(plain_number(from_epoch)?),
            to: NodeId::new(to).ok()?,
            to_epoch: Epoch(plain_number(to_epoch)?),
            service,
            method,
            call,
            hops: plain_number(hops)?,
            route,
            sent_at_ms: plain_number(sent_at)?,
            nonce,
            deadline_ms: plain_number(deadline)?,
            body: serde_json::from_str(body).ok()?,
        };
        message.is_sound().then_some(message)
    }

    fn is_sound(&self) -> bool {
        let life = self.deadline_ms.checked_sub(self.sent_at_ms);
        let direct = self.origin == self.from && self.origin_epoch == self.from_epoch;
        life.is_some_and(|life| life > 0 && life < MESSAGE_LIFE_MS)
            && (direct || self.hops > 0)
            && is_service_text(self.service)
            && is_service_text(self.method)
            && is_random(self.nonce)
            && (self.call.is_empty() || is_random(self.call))
            && self.route.len() <= ROUTE_MAX_BYTES
    }
}

impl<'a> Reply<'a> {
    /// Signed and ready to publish.
    pub fn to_wire(&self, keyring: &Keyring) -> Vec<u8> {
        let fields = [
            self.call,
            self.from.as_str(),
            &self.from_epoch.to_string(),
            self.to.as_str(),
            &self.to_epoch.to_string(),
            self.status,
            &self.sent_at_ms.to_string(),
            self.nonce,
            self.body.get(),
            SCHEMA_VERSION_TEXT,
        ];
        keyring.to_wire(Kind::Reply, &fields)
    }

    /// Reads verified `fields`, in the order of [`Kind::fields`]. `None` where one of them does not fit its type.
    pub fn from_fields(fields: &[&'a str]) -> Option<Self> {
        let &[call, from, from_epoch, to, to_epoch, status, sent_at, nonce, body, _version] = fields else {
            return None;
        };
        if !is_random(call) || !is_random(nonce) || status.is_empty() || status.len() > NAME_MAX_BYTES {
            return None;
        }
        Some(Self {
            call,
            from: NodeId::new(from).ok()?,
            from_epoch: Epoch(plain_number(from_epoch)?),
            to: NodeId::new(to).ok()?,
            to_epoch: Epoch(plain_number(to_epoch)?),
            status,
            sent_at_ms: plain_number(sent_at)?,
            nonce,
            body: serde_json::from_str(body).ok()?,
        })
    }
}

/// True for what may be a nonce or the id of a call. A blank is not among it, so nonce and hops can be joined by one.
fn is_random(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Secret;
    use crate::ids::Zone;

    fn keyring() -> Keyring {
        let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let secret = Secret::from_base64("MAITRED_SECRET", secret).expect("a secret");
        Keyring::new(Zone::new("eu").expect("a zone"), secret, Vec::new())
    }

    const MESSAGE: [&str; 16] = [
        "p1",
        "7",
        "p1",
        "7",
        "b1",
        "9",
        "places",
        "reserve",
        "c1",
        "0",
        "",
        "1796000000000",
        "n1",
        "1796000002000",
        r#"{ "b": 1, "a": 1.50 }"#,
        "1",
    ];
    const REPLY: [&str; 10] = ["c1", "b1", "9", "p1", "7", "ok", "1796000000100", "n2", "[1,  2]", "1"];

    // MSG-1: the body is the application's; what it signs over or hashes must arrive byte for byte.
    #[test]
    fn msg_1_records_go_through_the_wire_and_keep_the_bytes_of_the_body() {
        let ours = keyring();
        let bytes = Message::from_fields(&MESSAGE).expect("sound").to_wire(&ours);
        assert_eq!(bytes, ours.to_wire(Kind::Message, &MESSAGE));
        let wire = ours.from_wire(&bytes, 4_096).expect("signed");
        let message = Message::from_fields(&wire.fields).expect("sound");
        assert_eq!(message.body.get(), MESSAGE[14]);
        assert!(message.is_call());

        let bytes = Reply::from_fields(&REPLY).expect("sound").to_wire(&ours);
        assert_eq!(bytes, ours.to_wire(Kind::Reply, &REPLY));
        let wire = ours.from_wire(&bytes, 4_096).expect("signed");
        assert_eq!(Reply::from_fields(&wire.fields).expect("sound").body.get(), REPLY[8]);
    }

    // R-19: a deadline past the replay window would let a message be taken twice.
    #[test]
    fn msg_4_a_message_that_makes_no_sense_is_not_read() {
        let with = |index: usize, value: &'static str| {
            let mut fields = MESSAGE;
            fields[index] = value;
            Message::from_fields(&fields)
        };
        for (index, good) in [(8, ""), (13, "1796000029999"), (14, "null"), (10, "world:w-1")] {
            assert!(with(index, good).is_some(), "{index} {good}");
        }
        for (index, bad) in [
            (0, "p 1"),
            (0, "p2"),
            (1, "8"),
            (3, "-7"),
            (5, ""),
            (6, ""),
            (6, "a b"),
            (7, ""),
            (8, "a b"),
            (9, "x"),
            (11, "1796000002000"),
            (12, ""),
            (12, "n 0"),
            (13, "1796000030000"),
            (13, "1795999999999"),
            (13, "18446744073709551616"),
            (14, "{"),
            (14, ""),
        ] {
            assert!(with(index, bad).is_none(), "{index} {bad}");
        }
        assert!(Message::from_fields(&MESSAGE[..15]).is_none());
        let mut forwarded = MESSAGE;
        (forwarded[2], forwarded[3], forwarded[9]) = ("p2", "8", "1");
        assert!(Message::from_fields(&forwarded).is_some());
    }

    #[test]
    fn r_27_a_reply_that_makes_no_sense_is_not_read() {
        for (index, bad) in [(0, ""), (1, "b 1"), (2, "x"), (5, ""), (6, "x"), (7, ""), (8, "x")] {
            let mut fields = REPLY;
            fields[index] = bad;
            assert!(Reply::from_fields(&fields).is_none(), "{index} {bad}");
        }
    }
}
