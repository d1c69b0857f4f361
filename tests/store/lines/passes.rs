//! The pass that a player brings (QUE-7), as backends and links take it.

use maitred::agent::Setup;
use maitred::agent::config::LineConfig;
use maitred::envelope::{Keyring, Secret};
use maitred::node::LoadSample;
use maitred::queue::{Choice, PassRefusal};

use super::world::{World, gets_in, line, lined, login, sees_accepting};
use crate::fixtures::agents::{LIMIT, SECRET, config, id, player, zone};
use maitred_testkit::wait::eventually;

const NEXT_SECRET: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

fn secret(text: &str) -> Secret {
    Secret::from_base64("TEST", text).expect("a secret")
}

#[tokio::test]
async fn que_7_a_pass_lets_in_its_player_once_and_each_refusal_is_its_own() {
    let world = World::with(LineConfig { arrive_ms: 1_500, pass_ms: 2_000, ..line() });
    let server = world.server("b1", 10).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let alice = gets_in(&proxy, "alice").await;
    let agent = server.agent.agent();
    assert!(!alice.pass.contains("alice") && !alice.pass.contains("login"), "sealed: {}", alice.pass);

    let mut torn = alice.pass.clone().into_bytes();
    let middle = torn.len() / 2;
    torn[middle] = if torn[middle] == b'A' { b'B' } else { b'A' };
    let torn = String::from_utf8(torn).expect("text");
    assert_eq!(agent.verify_pass(&torn, &player("alice")), Err(PassRefusal::Invalid));
    assert_eq!(agent.verify_pass(&alice.pass, &player("bob")), Err(PassRefusal::WrongPlayer));
    let other = world.server("b2", 1).await;
    other.accepts(false);
    sees_accepting(&proxy, &other, false).await;
    assert_eq!(other.agent.agent().verify_pass(&alice.pass, &player("alice")), Err(PassRefusal::WrongAudience));

    // A node that was started with the next secret: it takes the present one only where it is told to.
    let stranger = |also: Vec<Secret>| {
        let mut config = config("b1", "backend", &world.store.url());
        config.node.id = Some(id("b1"));
        let keys = Keyring::new(zone(), secret(NEXT_SECRET), also);
        Setup::with_keyring(config, keys).expect("a setup").node(LoadSample::default).expect("a node")
    };
    let node = stranger(Vec::new());
    eventually("it knows the store's time", LIMIT, async || node.store().sync_clock().await.ok()).await;
    assert_eq!(node.verify_pass(&alice.pass, &player("alice")), Err(PassRefusal::UnknownKey));
    let node = stranger(vec![secret(SECRET)]);
    eventually("it knows the store's time", LIMIT, async || node.store().sync_clock().await.ok()).await;
    assert_eq!(node.verify_pass(&alice.pass, &player("alice")), Ok(alice.admission.pass.clone()), "while rotating");

    let pass = agent.verify_pass(&alice.pass, &player("alice")).expect("hers");
    assert_eq!(agent.redeem_pass(&pass).await.expect("the store"), Ok(()));
    assert_eq!(agent.redeem_pass(&pass).await.expect("the store"), Err(PassRefusal::Redeemed));
    let bob = gets_in(&proxy, "bob").await;
    let pass = agent.verify_pass(&bob.pass, &player("bob")).expect("his");
    assert_eq!(
        proxy.left(&login(), &player("bob"), maitred::agent::Departure::Quit).await.expect("the store"),
        maitred::queue::Left::Left
    );
    assert_eq!(agent.redeem_pass(&pass).await.expect("the store"), Err(PassRefusal::Void));
    let expired = async || agent.verify_pass(&alice.pass, &player("alice")) == Err(PassRefusal::Expired);
    eventually("her pass expires", LIMIT, expired).await;
}

#[tokio::test]
async fn que_5_a_line_can_lead_to_a_link_which_takes_the_pass() {
    let world = World::with(LineConfig { pick: Choice::LinkOnly, fixed_per_second: None, burst: None, ..line() });
    let proxy = world.proxy("p1").await;
    let config = lined("l1", "link", &world.store.url(), &world.line);
    let setup = Setup::with_keyring(config, crate::fixtures::agents::keyring()).expect("a setup");
    let link = setup.node(|| LoadSample { soft_cap: 5, ..LoadSample::default() }).expect("a link");
    link.set_accepting(true);
    let _backend = world.server("b1", 10).await;
    let alice = gets_in(&proxy, "alice").await;
    assert_eq!((alice.server.clone(), alice.link.clone()), (None, Some(id("l1"))));
    assert_eq!(alice.link_addr.as_deref(), Some("l1.example:25565"));
    let pass = link.verify_pass(&alice.pass, &player("alice")).expect("hers");
    assert_eq!(link.redeem_pass(&pass).await.expect("the store"), Ok(()));
}
