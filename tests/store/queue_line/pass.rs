use maitred::envelope::Keyring;
use maitred::ids::{OperationId, Role, SessionId, Zone};
use maitred::queue::{Admission, Admitter, Attributes, Choice, Entered, Failed, LoginPass, PassRefusal};
use maitred::store::Verifier;
use redis::AsyncCommands;

use crate::fixtures::lines::{Member, TestZone, login, other_secret, player, rounds, secret, snapshot};
use maitred_testkit::store::TestStore;

async fn admitted(zone: &TestZone, p1: &Member, b1: &Member, name: &str) -> Admission {
    let line = p1.line(&login(10_000, 1_000));
    p1.waits(&line, name).await;
    zone.open_gate("login").await;
    let mut admitter = Admitter::new(line, Choice::Backend, 1);
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[b1])).await.unwrap();
    round.admitted.into_iter().next().unwrap_or_else(|| panic!("{name} was not admitted"))
}

fn verifier(zone: &str, secrets: &[u8]) -> Verifier {
    let zone = Zone::new(zone).unwrap();
    let mut all = secrets.iter().map(|byte| other_secret(*byte));
    Verifier::new(match all.next() {
        Some(first) => Keyring::new(zone, first, all.collect()),
        None => Keyring::new(zone, secret(), Vec::new()),
    })
}

// QUE-7: offline, each refusal its own; without them a client writes itself a pass.
#[tokio::test]
async fn que_7_a_pass_is_verified_without_the_store_and_each_refusal_is_its_own() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 9).await);
    let admission = admitted(&zone, &p1, &b1, "alice").await;
    let ours = &zone.verifier;
    let (alice, me, now) = (player("alice"), &b1.who.id, zone.now().await);
    let sealed = admission.pass.seal(ours);
    assert_eq!(LoginPass::verify(ours, &sealed, me, &alice, now), Ok(admission.pass.clone()));
    // Two characters stand in any such text by chance, now and then.
    for id in ["alice", "login", admission.pass.op.as_str()] {
        assert!(!sealed.contains(id), "{id} can be read");
    }

    let bytes = sealed.as_bytes();
    for at in 0..bytes.len() {
        for flip in [1, 0x20] {
            let mut changed = bytes.to_vec();
            changed[at] ^= flip;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            let refused = LoginPass::verify(ours, &changed, me, &alice, now).expect_err(&changed);
            let key_changed = at < 8 && refused == PassRefusal::UnknownKey;
            assert!(refused == PassRefusal::Invalid || key_changed, "byte {at}: {refused:?}");
        }
    }
    let refused =
        |verifier: &Verifier, me, player, now| LoginPass::verify(verifier, &sealed, me, player, now).expect_err("bad");
    let (p1_id, bob) = (&p1.who.id, player("bob"));
    assert_eq!(refused(&verifier("us", &[]), me, &alice, now), PassRefusal::Invalid);
    assert_eq!(refused(&verifier("eu", &[7]), me, &alice, now), PassRefusal::UnknownKey);
    assert_eq!(refused(ours, me, &alice, now + 1_900_000), PassRefusal::Expired);
    assert_eq!(refused(ours, p1_id, &alice, now), PassRefusal::WrongAudience);
    assert_eq!(refused(ours, me, &bob, now), PassRefusal::WrongPlayer);

    // ENV-4: made with the former secret while the fleet signs with the new one.
    let by_seven = admission.pass.seal(&verifier("eu", &[7]));
    assert!(LoginPass::verify(&verifier("eu", &[8, 7]), &by_seven, me, &alice, now).is_ok());
}

#[tokio::test]
async fn que_7_a_pass_is_redeemed_once() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 9).await);
    let b2 = zone.member("b2", Role::backend(), 9).await;
    let pass = admitted(&zone, &p1, &b1, "alice").await.pass;
    let options = login(10_000, 1_000);
    let (at_b1, at_b2, op) = (b1.line(&options), b2.line(&options), OperationId::fresh());
    let elsewhere = at_b2.redeem(&b2.who, &pass, &OperationId::fresh()).await.unwrap();
    assert_eq!(elsewhere, Err(PassRefusal::WrongAudience));
    assert_eq!(at_b1.redeem(&b1.who, &pass, &op).await.unwrap(), Ok(()));
    assert_eq!(at_b1.redeem(&b1.who, &pass, &op).await.unwrap(), Ok(()), "STO-10: the reply was lost");
    let again = at_b1.redeem(&b1.who, &pass, &OperationId::fresh()).await.unwrap();
    assert_eq!(again, Err(PassRefusal::Redeemed));
    let admission = Admission { pass: pass.clone(), seq: 0, lane: 0, session: SessionId::fresh() };
    let (session, none) = (SessionId::fresh(), Attributes::default());
    let failed = p1.line(&options).failed(&p1.who, &admission, &session, &none, false).await.unwrap();
    assert_eq!(failed, Failed::Landed);
    // A redeemed pass is spent: whoever comes again waits again.
    assert!(matches!(p1.enter(&p1.line(&options), "alice").await.0, Entered::Waiting(_)));
}

// QUE-15, R-25: who comes too late gets a free place, or keeps the place in the line.
#[tokio::test]
async fn que_15_a_pass_redeemed_late_looks_for_a_place_again() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, mut b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 2).await);
    let first = admitted(&zone, &p1, &b1, "alice").await;
    let second = admitted(&zone, &p1, &b1, "bob").await;
    let options = login(10_000, 1_000);
    let (line, at_b1) = (p1.line(&options), b1.line(&options));
    let _: () = zone.raw.clone().del(zone.key("held:b1")).await.unwrap();
    b1.record.players = 1;
    b1.beat().await;
    assert_eq!(at_b1.redeem(&b1.who, &first.pass, &OperationId::fresh()).await.unwrap(), Ok(()), "one is free");
    let late = at_b1.redeem(&b1.who, &second.pass, &OperationId::fresh()).await.unwrap();
    assert_eq!(late, Err(PassRefusal::PlaceGone));
    p1.waits(&line, "carol").await;
    let Entered::Waiting(back) = p1.enter(&line, "bob").await.0 else { panic!("he waits again") };
    assert_eq!((back.seq, back.position), (second.seq, 1), "before carol");
}

#[tokio::test]
async fn r_21_who_leaves_with_an_unspent_pass_frees_the_place() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 1).await);
    let line = p1.line(&login(10_000, 1_000));
    let session = p1.waits(&line, "alice").await.session;
    zone.open_gate("login").await;
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    let pass = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap().admitted[0].pass.clone();
    let other = line.leave(&p1.holder(), &player("alice"), &SessionId::fresh()).await.unwrap();
    assert_eq!(other, maitred::queue::Left::Other);
    let left = line.leave(&p1.holder(), &player("alice"), &session).await.unwrap();
    assert_eq!(left, maitred::queue::Left::Left);
    assert!(!zone.keys().await.contains(&"held:b1".to_owned()));
    let void = b1.line(&login(1, 1)).redeem(&b1.who, &pass, &OperationId::fresh()).await.unwrap();
    assert_eq!(void, Err(PassRefusal::Void));
}

// with the store's password one can write any row; nobody is let in by one that no member signed.
#[tokio::test]
async fn r_6_a_forged_admission_is_not_believed() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 9).await);
    admitted(&zone, &p1, &b1, "alice").await;
    let line = p1.line(&login(1, 1));
    let mut raw = zone.raw.clone();
    let _: () = raw.hset(zone.key("pass:login:alice"), "server", "b9").await.unwrap();
    assert!(matches!(line.pass_of(&player("alice")).await, Err(maitred::Error::Untrusted { .. })));
    let (session, none) = (SessionId::fresh(), Attributes::default());
    let entered = line.enter(&p1.who, &player("alice"), 0, &session, &none, None).await;
    assert!(matches!(entered, Err(maitred::Error::Untrusted { .. })), "{entered:?}");
}
