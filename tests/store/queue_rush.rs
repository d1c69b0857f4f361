//! Ten thousand players at once: what an opening day asks of a line. If this fails, somebody is overtaken, forgotten, let
//! in twice, or a backend gets more than it can hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fixtures::lines::{HOUR_MS, Member, TestZone, login, player, snapshot};
use maitred::ids::{Role, SessionId};
use maitred::queue::{
    Admission, Admitter, Attributes, Choice, Entered, GateOptions, Left, Line, LineOptions, Position,
};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::AsyncCommands;

const PLAYERS: usize = 10_000;
const RATE: u32 = 2_500;
const BURST: u32 = 250;

/// Lets admitters of their own run until told to stop; hands back whom they admitted.
fn admit(
    members: &[Member],
    options: &LineOptions,
    backends: &Arc<Vec<maitred::node::NodeView>>,
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<Vec<Admission>>> {
    let one = |(seed, member): (usize, &Member)| {
        let (line, who) = (member.line(options), member.who.clone());
        let (backends, stop) = (Arc::clone(backends), Arc::clone(stop));
        tokio::spawn(async move {
            let mut admitter = Admitter::new(line, Choice::Backend, seed as u64);
            let mut admitted = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let nodes = maitred::node::Snapshot { nodes: backends.to_vec(), as_of_ms: 0, stale: false };
                let round = admitter.round(&who, &nodes).await.expect("a round");
                let pause = round.pause(Duration::from_millis(50));
                admitted.extend(round.admitted);
                tokio::time::sleep(pause).await;
            }
            admitted
        })
    };
    members.iter().enumerate().map(one).collect()
}

// QUE-1, QUE-3, QUE-4, QUE-6, QUE-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn que_6_ten_thousand_at_once_are_admitted_in_order_at_the_rate_and_never_oversold() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    // Whoever comes back does so in time, however slow the machine is.
    let options = LineOptions { lanes: vec![3, 1], reconnect_grace_ms: HOUR_MS, ..login(RATE, BURST) };
    let mut proxies = Vec::new();
    for n in 0..4 {
        proxies.push(zone.member(&format!("p{n}"), Role::proxy(), 0).await);
    }
    let mut backends = Vec::new();
    for (n, cap) in [2_000, 3_000, 5_300].into_iter().enumerate() {
        backends.push(zone.member(&format!("b{n}"), Role::backend(), cap).await);
    }
    let lines: Vec<Line> = proxies.iter().map(|proxy| proxy.line(&options)).collect();
    let lane = |n: usize| u16::from(n % 4 == 3);

    // Everyone enters, through the four proxies at once.
    let mut entering = Vec::new();
    for (at, (line, proxy)) in lines.iter().zip(&proxies).enumerate() {
        for part in 0..8 {
            let (line, who) = (line.clone(), proxy.who.clone());
            entering.push(tokio::spawn(async move {
                let mut places = Vec::new();
                for n in (0..PLAYERS).filter(|n| n % 4 == at && n / 4 % 8 == part) {
                    let (name, session) = (player(&format!("p{n:05}")), SessionId::fresh());
                    let entered = line.enter(&who, &name, lane(n / 4), &session, &Attributes::default(), None).await;
                    let Entered::Waiting(waiting) = entered.expect("an answer") else { panic!("{name} waits") };
                    places.push((name, waiting.seq, session));
                }
                places
            }));
        }
    }
    let mut places: HashMap<String, (u64, SessionId)> = HashMap::new();
    for part in entering {
        for (name, seq, session) in part.await.unwrap() {
            places.insert(name.to_string(), (seq, session));
        }
    }
    let seqs: BTreeSet<u64> = places.values().map(|(seq, _)| *seq).collect();
    assert_eq!((places.len(), seqs.len()), (PLAYERS, PLAYERS), "no two have the same place");

    // Three admitters; p3 is killed, which is what its row going means to the others; players drop and return.
    let (view, stop) =
        (Arc::new(snapshot(&backends.iter().collect::<Vec<_>>()).nodes), Arc::new(AtomicBool::new(false)));
    let admitters = admit(&proxies[..3], &options, &view, &stop);
    let watched = {
        let (raw, key, stop) = (zone.raw.clone(), zone.key("held:"), Arc::clone(&stop));
        let caps = [2_000_u64, 3_000, 5_300];
        tokio::spawn(async move {
            let mut most = [0_u64; 3];
            while !stop.load(Ordering::Relaxed) {
                for (n, cap) in caps.iter().enumerate() {
                    let held: u64 = raw.clone().zcard(format!("{key}b{n}")).await.unwrap();
                    assert!(held <= *cap, "b{n} has {held} promised of {cap}");
                    most[n] = most[n].max(held);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            most
        })
    };
    let waiting = async || lines[0].view().await.unwrap().waiting;
    eventually("the rush is under way", Duration::from_secs(60), async || waiting().await < 9_000).await;
    let _: () = zone.raw.clone().del(zone.key("node:p3")).await.unwrap();

    // Through p1 some drop: their places are kept, and they come back through p2.
    let mut dropped = Vec::new();
    for n in (0..PLAYERS).filter(|n| n % 4 == 1 && n % 200 == 1) {
        let name = format!("p{n:05}");
        let holder = proxies[1].holder();
        if lines[1].away(&holder, &player(&name), &places[&name].1).await.unwrap() == Left::Away {
            dropped.push(n);
        }
    }
    assert!(!dropped.is_empty());
    // Those of the dead proxy reconnect through p2, the foremost first; some of them never do.
    let lost: BTreeSet<usize> = (0..PLAYERS).filter(|n| n % 4 == 3 && n % 400 == 3).collect();
    let mut returning: Vec<usize> =
        (0..PLAYERS).filter(|n| n % 4 == 3 && !lost.contains(n)).chain(dropped.iter().copied()).collect();
    returning.sort_by_key(|n| places[&format!("p{n:05}")].0);
    let mut came_back = Vec::new();
    for chunk in returning.chunks(16) {
        let enter = chunk.iter().map(|n| {
            let (line, who, name) = (&lines[2], &proxies[2].who, player(&format!("p{n:05}")));
            let lane = lane(n / 4);
            async move {
                let (session, none) = (SessionId::fresh(), Attributes::default());
                (name.to_string(), line.enter(who, &name, lane, &session, &none, None).await.expect("an answer"))
            }
        });
        came_back.extend(futures_util::future::join_all(enter).await);
    }
    for (name, entered) in came_back {
        match entered {
            Entered::Waiting(waiting) => assert_eq!(waiting.seq, places[&name].0, "{name} stands where they stood"),
            Entered::Admitted(admission) => assert_eq!(admission.seq, places[&name].0, "{name} was admitted meanwhile"),
            Entered::Full => panic!("{name} is in the line"),
        }
    }
    eventually("nobody waits", Duration::from_secs(120), async || waiting().await == 0).await;
    stop.store(true, Ordering::Relaxed);
    let mut admitted = Vec::new();
    for admitter in admitters {
        admitted.extend(admitter.await.unwrap());
    }
    let most = watched.await.unwrap();
    admitted.sort_by_key(|admission| admission.pass.serial);

    // Nobody twice, nobody forgotten.
    let mut seen = HashMap::new();
    for admission in &admitted {
        let name = admission.pass.player.to_string();
        assert!(seen.insert(name.clone(), ()).is_none(), "{name} was admitted twice");
        assert_eq!(admission.seq, places[&name].0);
    }
    let away: Vec<String> = zone.raw.clone().zrange(zone.key("away:login"), 0, -1).await.unwrap();
    assert_eq!(admitted.len() + away.len(), PLAYERS);
    for name in &away {
        assert!(!seen.contains_key(name) && lost.contains(&name[1..].parse().unwrap()), "{name} was forgotten");
    }
    // In order inside each lane. Who came back after the kill is where they stood among those who had not gone by then.
    let returned: BTreeSet<String> = returning.iter().map(|n| format!("p{n:05}")).collect();
    for lane in 0..2 {
        let stayed: Vec<u64> = admitted
            .iter()
            .filter(|a| a.lane == lane && !returned.contains(a.pass.player.as_str()))
            .map(|a| a.seq)
            .collect();
        assert!(stayed.is_sorted(), "somebody in lane {lane} was overtaken");
    }
    // The rate: serials are the store's microseconds, one above the last where several fall into one.
    let times: Vec<u64> = admitted.iter().map(|admission| admission.pass.serial).collect();
    let mut from = 0;
    for (at, time) in times.iter().enumerate() {
        while time - times[from] > 1_000_000 {
            from += 1;
        }
        // Every window that begins with an admission of the last second and ends here.
        for (begin, first) in times.iter().enumerate().take(at).skip(from).step_by(16) {
            let allowed = u64::from(RATE) * (time - first) / 1_000_000 + u64::from(BURST) + 1;
            let count = (at - begin + 1) as u64;
            assert!(count <= allowed, "{count} in {} us, allowed are {allowed}", time - first);
        }
    }
    // Weighted by free places: each is filled to about the same degree.
    for (most, cap) in most.iter().zip([2_000.0, 3_000.0, 5_300.0]) {
        assert!(*most as f64 > 0.8 * cap, "{most} of {cap}");
    }
    let by_server = admitted.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<_, u64>, admission| {
        *counts.entry(admission.pass.server.clone().unwrap()).or_default() += 1;
        counts
    });
    assert!(by_server.values().zip([2_000, 3_000, 5_300]).all(|(count, cap)| *count <= cap), "{by_server:?}");
}

// QUE-8: exact up to 10,000, said to be beyond after that; the estimate is what then happens within a fifth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn que_8_positions_are_exact_and_estimates_come_true_at_a_constant_rate() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 1_000_000).await);
    let options = login(1_000, 50);
    let line = p1.line(&options);
    for part in 0..126 {
        let enter = (part * 80..(part + 1) * 80).map(|n| {
            let (line, who) = (&line, &p1.who);
            async move {
                let (session, none) = (SessionId::fresh(), Attributes::default());
                let entered = line.enter(who, &player(&format!("p{n:05}")), 0, &session, &none, None).await.unwrap();
                let Entered::Waiting(waiting) = entered else { panic!("p{n} waits") };
                waiting
            }
        });
        let waiting = futures_util::future::join_all(enter).await;
        let positions: BTreeSet<u64> = waiting.iter().map(|waiting| waiting.position).collect();
        assert_eq!(positions, (part * 80 + 1..=(part + 1) * 80).collect());
        assert!(waiting.iter().all(|w| w.shown().is_some() == (w.position <= 10_000)));
    }
    let all = line.positions(u64::MAX).await.unwrap();
    assert_eq!(all.len(), 10_000);
    for at in [0, 1, 4_999, 9_998, 9_999] {
        let Position::Waiting { position, .. } = line.position(&all[at]).await.unwrap() else { panic!("waits") };
        assert_eq!(position, at as u64 + 1);
    }

    // The asking proxy's config says 1,000 a second, and what is really admitted is 300: for 16 s the gate's word counts, then
    // what was measured. An estimate is right where the pace stays what it was; where this machine does not let it, the next
    // probe is asked for.
    let gate = GateOptions { fixed_per_second: Some(300), burst: Some(75), ..options.gate };
    let mut slow = Admitter::new(p1.line(&LineOptions { gate, ..options }), Choice::Backend, 1);
    let mut serials: Vec<u64> = Vec::new();
    let mut asked = Vec::new();
    for probe in [5_400, 6_300, 7_200, 8_100] {
        let mut estimate = None;
        while serials.len() <= probe {
            let round = slow.round(&p1.who, &snapshot(&[&b1])).await.unwrap();
            serials.extend(round.admitted.iter().map(|admission| admission.pass.serial));
            tokio::time::sleep(round.pause(Duration::from_millis(10))).await;
            if serials.len() >= probe - 300 && estimate.is_none() {
                let place = line.position(&all[probe]).await.unwrap();
                let Position::Waiting { estimate_ms: Some(told), .. } = place else { panic!("{place:?}") };
                estimate = Some((told as f64 * 1_000.0, serials.len()));
            }
        }
        let (told, at) = estimate.expect("asked on the way");
        let took = |from: usize, to: usize| (serials[to] - serials[from]) as f64;
        let (before, after) = (took(at - 301, at - 1) / 300.0, took(at - 1, probe) / (probe - at + 1) as f64);
        let error = (told - took(at - 1, probe)).abs() / took(at - 1, probe);
        asked.push((told, took(at - 1, probe), before / after));
        if (0.95..1.05).contains(&(before / after)) {
            assert!(error < 0.2, "told {told} us, it took {} us", took(at - 1, probe));
            return;
        }
    }
    panic!("the pace was never constant: {asked:?}");
}

// QUE-4: a store that is killed and comes back, and a gate that was lost, let nobody through above the rate.
#[tokio::test]
async fn que_4_the_gate_holds_over_a_restart_of_the_store() {
    let mut store = TestStore::with_args(&["--appendonly", "yes", "--appendfsync", "always"]);
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 10_000).await);
    let line = p1.line(&login(200, 20));
    for n in 0..300 {
        p1.waits(&line, &format!("p{n:03}")).await;
    }
    let mut admitters = [1, 2].map(|seed| Admitter::new(line.clone(), Choice::Backend, seed));
    let mut admitted = Vec::new();
    let nodes = snapshot(&[&b1]);
    for part in 0..3 {
        for round in 0..30 {
            let round = admitters[round % 2].round(&p1.who, &nodes).await.unwrap();
            admitted.extend(round.admitted.iter().map(|a| a.pass.serial));
            tokio::time::sleep(round.pause(Duration::from_millis(10)).min(Duration::from_millis(10))).await;
        }
        match part {
            0 => {
                store.kill();
                store.restart_with_data();
            }
            1 => drop(store.conn().await.del::<_, u64>(zone.key("gate:login")).await.unwrap()),
            _ => {}
        }
    }
    admitted.sort_unstable();
    assert!(admitted.len() > 20, "{admitted:?}");
    for (at, time) in admitted.iter().enumerate() {
        for (begin, first) in admitted[..at].iter().enumerate() {
            let allowed = 200 * (time - first) / 1_000_000 + 20 + 1;
            assert!((at - begin + 1) as u64 <= allowed, "more than the gate allows in {} us", time - first);
        }
    }
}
