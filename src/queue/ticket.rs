use crate::envelope::{AuditReason, Kind, SCHEMA_VERSION, SCHEMA_VERSION_TEXT};
use crate::error::{Error, Result};
use crate::ids::{Epoch, LineName, NodeEpoch, NodeId, Player, Region, RequestId, SessionId};
use crate::store::Verifier;

/// Longest attributes of a ticket, in bytes: a million of them lie in the store's memory.
pub const ATTRIBUTES_MAX_BYTES: usize = 64;
/// Where a wish names a world and no region: no region is called so.
const ANY_REGION: &str = "*";
/// Characters of an unknown version that an error shows.
const VERSION_SHOWN: usize = 20;

/// A text of the application's own that goes with a ticket: at most 64 bytes, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(String);

impl Attributes {
    /// Errors with [`Error::OutOfBounds`].
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let out_of_bounds = |problem: String| Error::OutOfBounds { what: "attributes", problem };
        if text.len() > ATTRIBUTES_MAX_BYTES {
            return Err(out_of_bounds(format!("{} bytes, allowed are {ATTRIBUTES_MAX_BYTES}", text.len())));
        }
        if text.chars().any(char::is_control) {
            return Err(out_of_bounds("it holds a control character".to_owned()));
        }
        Ok(Self(text))
    }

    /// The wish of a request that waits: its id, the region and the world that it asks for. `<request>`,
    /// `<request> <region>` or `<request> <region> <world>`, the region `*` where only a world is asked for.
    ///
    /// Errors with [`Error::OutOfBounds`] where that does not fit.
    pub fn of_wish(request: &RequestId, region: Option<&Region>, world: Option<&str>) -> Result<Self> {
        let region = region.map(Region::as_str).or(world.map(|_| ANY_REGION));
        let parts: Vec<&str> = [Some(request.as_str()), region, world].into_iter().flatten().collect();
        Self::new(parts.join(" "))
    }

    /// Reads [`of_wish`](Self::of_wish).
    pub fn wish(&self) -> Option<(RequestId, Option<Region>, Option<String>)> {
        let mut parts = self.0.splitn(3, ' ');
        let request = RequestId::new(parts.next()?).ok()?;
        let region = match parts.next() {
            None | Some(ANY_REGION) => None,
            Some(region) => Some(Region::new(region).ok()?),
        };
        Some((request, region, parts.next().map(str::to_owned)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A player's place in a line, signed by the proxy that holds it. In the store it is one text:
/// `seq lane proxy proxy_epoch session joined_at v sig attributes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The line.
    pub line: LineName,
    /// Whose.
    pub player: Player,
    /// Where in the lane: lower comes first. Given by the script, so not signed.
    pub seq: u64,
    /// The lane.
    pub lane: u16,
    /// The proxy that holds it.
    pub holder: NodeEpoch,
    /// The visit.
    pub session: SessionId,
    /// When it was signed, in store ms.
    pub joined_at_ms: u64,
    /// The application's own.
    pub attributes: Attributes,
    /// The signature.
    pub sig: String,
}

/// What a text in `tickets:<line>` turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketText {
    /// A ticket that a member signed for this line and player.
    Good(Ticket),
    /// Not what a member wrote there: whoever stands so at the head is put out.
    Forged,
    /// Of a schema version that this build does not know: another build looks after it.
    Strange,
}

impl Ticket {
    fn with_fields<T>(&self, then: impl FnOnce(&[&str]) -> T) -> T {
        let (lane, epoch, joined_at) =
            (self.lane.to_string(), self.holder.epoch.to_string(), self.joined_at_ms.to_string());
        then(&[
            self.line.as_str(),
            self.player.as_str(),
            &lane,
            self.holder.id.as_str(),
            &epoch,
            self.session.as_str(),
            &joined_at,
            self.attributes.as_str(),
            SCHEMA_VERSION_TEXT,
        ])
    }

    /// Signs it.
    pub fn sign(&mut self, verifier: &Verifier) {
        self.sig = self.with_fields(|fields| verifier.keyring().sign(Kind::Ticket, fields).as_str().to_owned());
    }

    /// The text in the store.
    pub fn text(&self) -> String {
        format!(
            "{} {} {} {} {} {} {SCHEMA_VERSION_TEXT} {} {}",
            self.seq,
            self.lane,
            self.holder.id,
            self.holder.epoch,
            self.session,
            self.joined_at_ms,
            self.sig,
            self.attributes.as_str()
        )
    }

    /// Reads and verifies a text of `tickets:<line>`. What does not verify is audited.
    pub fn read(verifier: &Verifier, line: &LineName, player: &Player, text: &str) -> TicketText {
        match Self::verified(verifier, line, player, text) {
            Ok(ticket) => TicketText::Good(ticket),
            Err(Error::SchemaVersion { .. }) => TicketText::Strange,
            Err(_) => TicketText::Forged,
        }
    }

    /// [`read`](Self::read) with the reason. Errors with [`Error::SchemaVersion`] for a version that this build does not
    /// know, with [`Error::Untrusted`] for whatever no member wrote; both are audited.
    pub fn verified(verifier: &Verifier, line: &LineName, player: &Player, text: &str) -> Result<Self> {
        let key = || format!("ticket of {player} in {line}");
        let fields: Vec<&str> = text.splitn(9, ' ').collect();
        if let Some(version) = fields.get(6).filter(|version| **version != SCHEMA_VERSION_TEXT)
            && version.bytes().all(|byte| byte.is_ascii_digit())
            && !version.is_empty()
        {
            verifier.audit().drop(AuditReason::SchemaVersion, line.as_str(), &key());
            let version = version.chars().take(VERSION_SHOWN).collect();
            return Err(Error::SchemaVersion { what: key(), version, known: SCHEMA_VERSION });
        }
        let refuse = |reason: AuditReason| verifier.refuse(reason, line.as_str(), &key());
        let ticket = Self::from_fields(line, player, &fields).ok_or_else(|| refuse(AuditReason::Malformed))?;
        ticket
            .with_fields(|fields| verifier.keyring().verify(Kind::Ticket, fields, &ticket.sig))
            .map_err(|failure| refuse(AuditReason::from(failure)))?;
        Ok(ticket)
    }

    /// True where another secret than the signing one made the signature: it has to be signed again before that secret is
    /// dropped.
    pub fn is_of_old_secret(&self, verifier: &Verifier) -> bool {
        !self.sig.starts_with(verifier.keyring().kid().as_str())
    }

    fn from_fields(line: &LineName, player: &Player, fields: &[&str]) -> Option<Self> {
        let &[seq, lane, proxy, epoch, session, joined_at, _version, sig, attributes] = fields else {
            return None;
        };
        Some(Self {
            line: line.clone(),
            player: player.clone(),
            seq: seq.parse().ok()?,
            lane: lane.parse().ok()?,
            holder: NodeEpoch { id: NodeId::new(proxy).ok()?, epoch: Epoch(epoch.parse().ok()?) },
            session: SessionId::new(session).ok()?,
            joined_at_ms: joined_at.parse().ok()?,
            attributes: Attributes::new(attributes).ok()?,
            sig: sig.to_owned(),
        })
    }

    /// Who holds the ticket of a text, verified or not: for the keys of a call.
    pub(super) fn holder_of(text: &str) -> Option<NodeEpoch> {
        let mut fields = text.splitn(5, ' ').skip(2);
        let (proxy, epoch) = (fields.next()?, fields.next()?);
        Some(NodeEpoch { id: NodeId::new(proxy).ok()?, epoch: Epoch(epoch.parse().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Keyring, Secret};
    use crate::ids::Zone;

    fn verifier() -> Verifier {
        let secret = Secret::from_base64("T", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("valid");
        Verifier::new(Keyring::new(Zone::new("eu").expect("valid"), secret, Vec::new()))
    }

    fn ticket(verifier: &Verifier) -> Ticket {
        let mut ticket = Ticket {
            line: LineName::new("login").expect("valid"),
            player: Player::new("alice").expect("valid"),
            seq: 1_796_000_000_001,
            lane: 3,
            holder: NodeEpoch { id: NodeId::new("p1").expect("valid"), epoch: Epoch(1_796_000_000_000) },
            session: SessionId::fresh(),
            joined_at_ms: 1_796_000_000_250,
            attributes: Attributes::new("vip, from lobby 2").expect("short"),
            sig: String::new(),
        };
        ticket.sign(verifier);
        ticket
    }

    // a valid ticket copied under another player or line would let somebody pass for its owner.
    #[test]
    fn r_22_a_ticket_is_read_back_and_only_under_its_own_line_and_player() {
        let verifier = verifier();
        let good = ticket(&verifier);
        let (line, text) = (good.line.clone(), good.text());
        assert_eq!(Ticket::read(&verifier, &line, &good.player, &text), TicketText::Good(good.clone()));
        assert_eq!(Ticket::read(&verifier, &line, &Player::new("bob").expect("valid"), &text), TicketText::Forged);
        let other = LineName::new("vip").expect("valid");
        assert_eq!(Ticket::read(&verifier, &other, &good.player, &text), TicketText::Forged);
        assert_eq!(Ticket::holder_of(&text), Some(good.holder.clone()));
        for from_to in [(" 3 p1 ", " 2 p1 "), ("p1", "p2"), (" 1 5", " 1 6"), ("vip", "VIP")] {
            let forged = text.replacen(from_to.0, from_to.1, 1);
            assert_ne!(forged, text);
            assert_eq!(Ticket::read(&verifier, &line, &good.player, &forged), TicketText::Forged, "{forged}");
        }
        for garbage in ["", "x", &text[..20], "1 2 3 4 5 6 7x 8 9"] {
            assert_eq!(Ticket::read(&verifier, &line, &good.player, garbage), TicketText::Forged, "{garbage}");
        }
        // The place itself is the script's and is not signed.
        let moved = text.replacen("1796000000001", "1796000000009", 1);
        assert!(matches!(Ticket::read(&verifier, &line, &good.player, &moved), TicketText::Good(_)));
    }

    // a build that puts out what it does not understand empties the line of its successor.
    #[test]
    fn r_22_a_ticket_of_another_version_is_strange_and_not_forged() {
        let verifier = verifier();
        let good = ticket(&verifier);
        let text = good.text().replacen(" 1 5ebd00f2", " 2 5ebd00f2", 1);
        assert_eq!(Ticket::read(&verifier, &good.line, &good.player, &text), TicketText::Strange);
    }

    #[test]
    fn que_3_attributes_have_at_most_64_bytes() {
        assert!(Attributes::new("x".repeat(64)).is_ok() && Attributes::new("x".repeat(65)).is_err());
        assert!(Attributes::new("a\nb").is_err());
    }

    // QUE-9: whoever waits for a world or region and is given another one waited for nothing.
    #[test]
    fn que_9_a_wish_is_read_back_from_its_ticket_or_does_not_fit() {
        let (request, main) = (RequestId::short(), Region::new("main").expect("valid"));
        for (region, world, text) in [
            (None, None, ""),
            (Some(&main), None, " main"),
            (Some(&main), Some("the end"), " main the end"),
            (None, Some("minecraft:the_nether"), " * minecraft:the_nether"),
            (None, Some(""), " * "),
        ] {
            let wish = Attributes::of_wish(&request, region, world).expect("short");
            assert_eq!(wish.as_str(), format!("{request}{text}"));
            assert_eq!(wish.wish(), Some((request.clone(), region.cloned(), world.map(str::to_owned))));
        }
        assert!(Attributes::of_wish(&request, None, Some(&"x".repeat(45))).is_ok());
        assert!(Attributes::of_wish(&request, None, Some(&"x".repeat(46))).is_err());
        assert_eq!(Attributes::default().wish(), None);
    }
}
