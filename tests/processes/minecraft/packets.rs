//! What clients of each age send first, and what cannot be: read by the example's own parser, without a process.

use maitred::ids::Player;
use proptest::prelude::*;
use tokio::io::AsyncReadExt;

use super::frame::{Body, Inlet, locate, put_var_int};
use super::hello::{self, HANDSHAKE_MAX_BYTES, Hello};

/// A frame around a body.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    put_var_int(&mut frame, body.len());
    frame.extend_from_slice(body);
    frame
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_var_int(&mut bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

pub fn handshake(protocol: usize, host: &str, next: u8) -> Vec<u8> {
    let mut body = vec![0];
    put_var_int(&mut body, protocol);
    body.extend(text(host));
    body.extend(25_565_u16.to_be_bytes());
    body.push(next);
    frame(&body)
}

/// The start of a login: the name, and what the version puts behind it.
pub fn login(name: &str, rest: &[u8]) -> Vec<u8> {
    frame(&[&[0], text(name).as_slice(), rest].concat())
}

/// What follows the name: nothing; a signature with its key; an optional UUID; a UUID.
pub fn tails() -> [Vec<u8>; 5] {
    let key = [vec![1], vec![0; 8], text(&"k".repeat(294)), text(&"s".repeat(512))].concat();
    let uuid = vec![7; 16];
    [vec![], key.clone(), [key, vec![1], uuid.clone()].concat(), [vec![1], uuid.clone()].concat(), uuid]
}

async fn read(mut bytes: &[u8]) -> (Result<Hello, String>, Inlet) {
    let mut inlet = Inlet::default();
    let hello = hello::read(&mut inlet, &mut bytes).await.map_err(|fault| fault.to_string());
    (hello, inlet)
}

// PLC-6: the name is first in every version, and every byte is kept as it came.
#[tokio::test]
async fn plc_6_the_login_of_every_version_is_read_and_kept_byte_for_byte() {
    let name = Player::new("Alice_16_letters").expect("a player");
    for (protocol, tail) in [47, 759, 760, 761, 767].into_iter().zip(tails()) {
        for next in [2, 3] {
            // A mod loader's mark behind the host, and the next packet come along.
            let host = "play.example\0FML3\0";
            let hello = [handshake(protocol, host, next), login(name.as_str(), &tail)].concat();
            let sent = [hello.as_slice(), b"more"].concat();
            let (wish, inlet) = read(&sent).await;
            assert_eq!(wish, Ok(Hello::Login { name: name.clone() }), "{protocol}");
            assert!(inlet.raw().len() >= hello.len() && sent.starts_with(inlet.raw()), "{protocol}");
        }
    }
    let (hello, _) = read(&handshake(767, &"h".repeat(255), 1)).await;
    assert_eq!(hello, Ok(Hello::Status { protocol: 767 }));
    for (old, detailed) in [(&b"\xfe"[..], false), (b"\xfe\x01", true), (b"\xfe\x01\xfa\0\x0bMC|PingHost", true)] {
        assert_eq!(read(old).await.0, Ok(Hello::OldPing { detailed }));
    }
}

// PLC-6: the length of a handshake may begin like an old ping; that player would read a line of the server list.
#[tokio::test]
async fn plc_6_a_handshake_that_begins_like_an_old_ping_is_a_handshake() {
    for second in 1..=5 {
        // All but the host are 8 bytes. It has at most 255 characters, so the longer ones need more bytes for each.
        let host_bytes = 126 + 128 * second - 8;
        let wide = if host_bytes > 255 { host_bytes / 3 } else { 0 };
        let host = "\u{20ac}".repeat(wide) + &"h".repeat(host_bytes - 3 * wide);
        for (next, name) in [(1, None), (2, Some("alice"))] {
            let begin = handshake(767, &host, next);
            assert_eq!((begin[0], usize::from(begin[1]), begin[2]), (0xfe, second, 0));
            let sent = [begin, name.map_or(Vec::new(), |name| login(name, &[]))].concat();
            let want = name.map_or(Hello::Status { protocol: 767 }, |name| Hello::Login {
                name: Player::new(name).expect("a player"),
            });
            // However the network cuts it.
            for cut in [1, 2, 3, sent.len()] {
                let mut inlet = Inlet::default();
                let hello = hello::read(&mut inlet, &mut (&sent[..cut]).chain(&sent[cut..])).await;
                assert_eq!(hello.ok().as_ref(), Some(&want), "{second:x}, cut at {cut}");
            }
        }
    }
    // And what is neither is no ping.
    assert!(read(b"\xfe\x02\xfa").await.0.is_err());
}

// REL-3: one node that publishes nonsense must not take the server list away.
#[test]
fn rel_3_published_numbers_add_up_whatever_they_are() {
    let published = [(3, 20), (u64::MAX, u64::MAX), (4, 1)];
    assert_eq!(super::status::sum(published.into_iter()), (u64::MAX, u64::MAX));
    assert_eq!(super::status::sum(published.into_iter().step_by(2)), (7, 21));
}

// REL-3: a client sends what it likes.
#[tokio::test]
async fn rel_3_bad_and_oversized_frames_are_refused() {
    let too_long = {
        let mut bytes = Vec::new();
        put_var_int(&mut bytes, HANDSHAKE_MAX_BYTES + 1);
        bytes
    };
    let named = |name: &str| [handshake(47, "h", 2), login(name, &[])].concat();
    for (bytes, said) in [
        (b"".to_vec(), "went away"),
        (b"\x10\0".to_vec(), "went away"),
        (b"\0".to_vec(), "empty"),
        (b"\xff\xff\xff".to_vec(), "does not end"),
        (too_long, "too long"),
        (b"GET / HTTP/1.1\r\n".to_vec(), "went away"),
        (frame(b"\x01"), "no handshake"),
        (frame(b"\0\xff\xff\xff\xff\xff\x01"), "does not end"),
        (frame(b"\0\x2f\xff\xff\xff\xff\x0f"), "negative"),
        (frame(b"\0\x2f\x04h"), "too short"),
        (frame(b"\0\x2f\x02\xff\xfe\0\0\x01"), "UTF-8"),
        (handshake(47, &"h".repeat(256), 1), "too long"),
        (frame(&[&handshake(47, "h", 1)[1..], b"x"].concat()), "more behind"),
        (handshake(47, "h", 4), "unknown wish"),
        ([handshake(47, "h", 2), frame(b"\x01")].concat(), "no login"),
        (named(""), "cannot be"),
        (named("a b"), "cannot be"),
        (named("12345678901234567"), "too long"),
        ([handshake(47, "h", 2), login("a", &[0; 2_048])].concat(), "too long"),
    ] {
        let (hello, _) = read(&bytes).await;
        assert!(hello.as_ref().is_err_and(|fault| fault.contains(said)), "{bytes:?}: {hello:?}, not {said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    // REL-3: no bytes make it panic, and it finds no frame beyond what it was given.
    #[test]
    fn rel_3_no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), max in 0_usize..64) {
        if let Ok(Some(range)) = locate(&bytes, max) {
            prop_assert!(range.end <= bytes.len() && range.len() <= max);
        }
        let _ = hello::handshake(Body(&bytes));
        let _ = hello::login(Body(&bytes));
    }
}
