//! How connections end that nobody ends: else clients that say nothing more take every slot, and no player gets in.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::frame::Inlet;
use super::pass::both_ways;
use super::slots::Slots;

/// The far ends of a client and its backend, each behind a pipe that holds few bytes.
fn passing() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
    let ((client, near), (far, backend)) = (duplex(64), duplex(64));
    (client, backend, tokio::spawn(both_ways(Inlet::default(), near, far)))
}

// Time stands still but for timers, so an end that does not come shows as a test that hangs.

#[tokio::test(start_paused = true)]
async fn rel_3_a_side_that_stays_when_the_other_has_ended_is_hung_up_on() {
    let (mut client, backend, passing_on) = passing();
    drop(backend);
    let end = passing_on.await.expect("no panic").expect_err("it did not end by itself");
    assert_eq!(end.kind(), io::ErrorKind::TimedOut);
    assert_eq!(client.read(&mut [0]).await.expect("an end"), 0);

    let (client, mut backend, passing_on) = passing();
    drop(client);
    assert!(passing_on.await.expect("no panic").is_err());
    assert_eq!(backend.read(&mut [0]).await.expect("an end"), 0);
}

#[tokio::test(start_paused = true)]
async fn rel_3_a_side_that_reads_nothing_is_hung_up_on() {
    for deaf in ["client", "backend"] {
        let (mut client, mut backend, passing_on) = passing();
        let from = if deaf == "client" { &mut backend } else { &mut client };
        let sent = from.write_all(&[7; 100_000]).await;
        assert!(sent.is_err(), "{deaf}: more was taken than there is room for");
        let end = passing_on.await.expect("no panic").expect_err("it did not end by itself");
        assert_eq!(end.kind(), io::ErrorKind::TimedOut, "{deaf}");
    }
}

#[tokio::test(start_paused = true)]
async fn plc_6_what_is_under_way_when_one_side_ends_still_arrives() {
    let (mut client, mut backend, passing_on) = passing();
    client.write_all(b"bye").await.expect("written");
    client.shutdown().await.expect("shut down");
    let mut read = Vec::new();
    backend.read_to_end(&mut read).await.expect("read");
    assert_eq!(read, b"bye");
    backend.write_all(b"see you").await.expect("written");
    drop(backend);
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.expect("read");
    assert_eq!(read, b"see you");
    passing_on.await.expect("no panic").expect("both ended");
}

#[test]
fn rel_3_one_address_takes_only_its_share_of_the_slots() {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let slots = Slots::new(4, 2);
    for same in [["192.0.2.1", "::ffff:192.0.2.1"], ["2001:db8::1", "2001:db8::ffff:0:0:2"]] {
        let taken = same.map(|address| slots.take(ip(address)).expect("room"));
        assert!(slots.take(ip(same[0])).is_none(), "{same:?}");
        let other = slots.take(ip("2001:db8:0:1::1")).expect("room for another");
        drop((taken, other));
    }
    let all = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|address| slots.take(ip(address)));
    assert!(all.iter().all(Option::is_some) && slots.take(ip("192.0.2.5")).is_none(), "no more than all");
    drop(all);
    assert!(slots.take(ip("192.0.2.5")).is_some(), "they come back");
}
