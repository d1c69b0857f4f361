//! The lines of either role, and what happens to a line that is none.

use serde_json::json;

use super::{Fleet, LIMIT, ask, sees};
use maitred_testkit::fleet::Node;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn cli_3_a_player_goes_all_the_way_by_lines() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;

    let early = ask(&mut proxy, json!({"op": "dispatch", "id": "r0", "player": "alice", "region": "default"})).await;
    assert_eq!((&early["outcome"], &early["reason"]), (&json!("refused"), &json!("no_candidate")));
    assert!(early["message"].as_str().is_some_and(|text| !text.is_empty()), "what the player reads: {early}");

    let set = ask(&mut backend, json!({"op": "places", "id": "s1", "count": 20, "region": "default"})).await;
    assert_eq!((&set["outcome"], &set["free"]), (&json!("ok"), &json!(20)));
    let moved = sees(&mut proxy, "alice").await;
    assert_eq!((&moved["server"], &moved["addr"]), (&json!("b1"), &json!("b1.example:25565")));
    assert!(moved["deadline_ms"].as_u64().is_some_and(|left| left > 10_000 && left < 30_000), "{moved}");
    let promised = backend.wait_for(|line| line["event"] == "place_promised", LIMIT).await;
    assert_eq!((&promised["player"], &promised["token"]), (&json!("alice"), &moved["token"]));

    let found = ask(&mut proxy, json!({"op": "find", "id": "f1", "player": "alice"})).await;
    assert_eq!((&found["outcome"], &found["token"]["id"]), (&json!("found"), &moved["token"]));
    assert_eq!(found["token"]["state"], "CLAIMED");

    // A count that has no room for one more is no reason to lose the player.
    let full = json!({"op": "load", "id": "l0", "players": u64::MAX});
    assert_eq!(ask(&mut backend, full).await["outcome"], "ok");
    let landed = ask(&mut backend, json!({"op": "redeem", "id": "r2", "player": "alice"})).await;
    assert_eq!((&landed["outcome"], &landed["token"]), (&json!("landed"), &moved["token"]));
    assert_eq!(landed["payload"], moved["payload"]);
    assert_eq!(landed["payload"]["region"], "default");
    let again = ask(&mut backend, json!({"op": "redeem", "id": "r3", "player": "alice"})).await;
    assert_eq!(again["outcome"], "none");
    let found = ask(&mut proxy, json!({"op": "find", "id": "f2", "player": "alice"})).await;
    assert_eq!(found["outcome"], "none");

    let status = ask(&mut backend, json!({"op": "status", "id": "t1"})).await;
    assert_eq!((&status["free"], &status["promised"]), (&json!(19), &json!(0)));
    assert_eq!(status["agent"]["status"], "member");

    // A transfer that fails, and one that is cancelled: both places come home.
    let moved = sees(&mut proxy, "bob").await;
    let released = ask(&mut proxy, json!({"op": "release", "id": "r4", "player": "bob", "request": moved["id"]})).await;
    assert_eq!(released["outcome"], "released");
    let home = backend.wait_for(|line| line["event"] == "place_returned", LIMIT).await;
    assert_eq!((&home["player"], &home["token"]), (&json!("bob"), &moved["token"]));
    let moved = sees(&mut proxy, "carol").await;
    let gone = ask(&mut proxy, json!({"op": "cancel", "id": "r5", "player": "carol", "request": moved["id"]})).await;
    assert_eq!(gone["outcome"], "cancelled");
    backend.wait_for(|line| line["event"] == "place_returned" && line["player"] == "carol", LIMIT).await;
    let unknown = ask(&mut proxy, json!({"op": "cancel", "id": "r6", "player": "carol", "request": "nothing"})).await;
    assert_eq!(unknown["outcome"], "error");

    let load = json!({"op": "load", "id": "l1", "players": 7, "soft_cap": 100, "load": {"tps_1m": 19.5}});
    assert_eq!(ask(&mut backend, load).await["outcome"], "ok");
}

// DSP-8: a connection that closes right behind its command. The two lines are one write.
#[tokio::test]
async fn cli_3_a_cancel_right_behind_its_dispatch_finds_it() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 50})).await;
    sees(&mut proxy, "warm").await;
    ask(&mut backend, json!({"op": "redeem", "id": "w", "player": "warm"})).await;
    for n in 0..20 {
        let (name, request) = (format!("p{n}"), format!("r{n}"));
        let dispatch = json!({"op": "dispatch", "id": request, "player": name});
        let cancel = json!({"op": "cancel", "id": format!("c{n}"), "player": name, "request": request});
        proxy.send_line(&format!("{dispatch}\n{cancel}"));
        let mut answers = Vec::new();
        while answers.len() < 2 {
            let line = proxy.next_line(LIMIT).await;
            assert_ne!(line["outcome"], "error", "{line}");
            answers.push((line["id"].clone(), line["outcome"].clone()));
        }
        assert!(answers.contains(&(json!(format!("c{n}")), json!("cancelled"))), "{answers:?}");
        let found = ask(&mut proxy, json!({"op": "find", "id": format!("f{n}"), "player": name})).await;
        assert_eq!(found["outcome"], "none", "no live token is left");
    }
    all_home(&mut backend, 49).await;
}

// DSP-8: an id names one request, so a cancel ends all there is of it. If this fails, a place stays promised to a player
// who is gone, or a player is moved after the cancel.
#[tokio::test]
async fn cli_3_an_id_that_is_not_answered_yet_is_refused_and_a_cancel_leaves_no_promise() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 50})).await;
    sees(&mut proxy, "warm").await;
    ask(&mut backend, json!({"op": "redeem", "id": "w", "player": "warm"})).await;
    let dispatch = json!({"op": "dispatch", "id": "same", "player": "alice"}).to_string();
    let cancel = json!({"op": "cancel", "id": "c", "player": "alice", "request": "same"}).to_string();
    let other = json!({"op": "dispatch", "id": "same", "player": "bob"}).to_string();
    proxy.send_line(
        &[&dispatch, &dispatch, &dispatch, &dispatch, &dispatch, &other, &cancel].map(String::as_str).join("\n"),
    );
    let mut refused = 0;
    let mut answers = Vec::new();
    while answers.len() + refused < 7 {
        let line = proxy.next_line(LIMIT).await;
        if line["outcome"] == "error" {
            assert!(line["id"] == "same" && line["error"].as_str().is_some_and(|why| why.contains("not answered yet")));
            refused += 1;
        } else {
            answers.push(line);
        }
    }
    assert_eq!(refused, 4, "{answers:?}");
    // It is lost where it meets a claim that is still on its way; the dispatch gives that token back then.
    let ends =
        |line: &serde_json::Value| line["id"] == "c" && matches!(line["outcome"].as_str(), Some("cancelled" | "lost"));
    assert!(answers.iter().any(ends), "{answers:?}");
    assert!(answers.iter().any(|line| line["player"] == "bob" && line["outcome"] == "transfer"), "{answers:?}");
    let mut n = 0;
    eventually("no live token is left", LIMIT, async || {
        n += 1;
        let found = ask(&mut proxy, json!({"op": "find", "id": format!("f{n}"), "player": "alice"})).await;
        found["outcome"] == "none"
    })
    .await;
    // Once it is answered, the id can be used again.
    let again = ask(&mut proxy, json!({"op": "dispatch", "id": "same", "player": "alice"})).await;
    assert_eq!(again["outcome"], "transfer", "{again}");
}

async fn all_home(backend: &mut Node, free: u64) {
    let mut n = 0;
    eventually("every place is free again", LIMIT, async || {
        n += 1;
        let status = ask(backend, json!({"op": "status", "id": format!("t{n}")})).await;
        status["free"] == free && status["promised"] == 0
    })
    .await;
}

#[tokio::test]
async fn cli_3_a_line_that_is_not_valid_is_answered_and_the_process_goes_on() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let wrong = [
        ("{", "not valid"),
        ("places 20", "not valid"),
        ("[1,2]", "not valid"),
        ("{\"op\":\"fly\",\"id\":\"x\"}", "unknown variant"),
        ("{\"op\":\"redeem\",\"id\":\"x\",\"player\":\"a b\"}", "without blanks"),
        ("{\"op\":\"places\",\"id\":\"x\",\"count\":-1}", "not valid"),
        ("{\"op\":\"places\",\"id\":\"x\",\"count\":99999999999}", "out of range"),
        ("{\"op\":\"dispatch\",\"id\":\"x\",\"player\":\"alice\"}", "a backend has no such op"),
        (&format!("{{\"op\":\"status\",\"id\":\"{}\"}}", "x".repeat(70_000)), "longer than 65536 bytes"),
    ];
    for (line, want) in wrong {
        backend.send_line(line);
        let answer = backend.next_line(LIMIT).await;
        assert_eq!(answer["outcome"], "error", "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(want)), "{want}: {answer}");
        if line.contains("\"id\":\"x\"") {
            assert_eq!(answer["id"], "x", "{answer}");
        }
    }
    backend.send_line("");
    backend.send_line("   ");
    let status = ask(&mut backend, json!({"op": "status", "id": "t1"})).await;
    assert_eq!(status["outcome"], "ok");
}

// DSP-6, DSP-7: what an application says of a player who connects goes in by the same line.
#[tokio::test]
async fn dsp_7_who_connects_without_a_right_gets_a_backend_and_a_lobby_gives_nobody_a_place() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    let (mut lobby, _) = fleet.node("l1", "lobby").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 5})).await;
    sees(&mut proxy, "warm").await;
    let join = |id: &str, first: bool, right: bool| {
        json!({"op": "dispatch", "id": id, "player": id, "source": "join", "first_join": first, "may_be_placed": right,
            "prefer": "default"})
    };
    for (id, first, right) in [("j1", false, true), ("j2", true, true), ("j3", true, false)] {
        let sent = ask(&mut proxy, join(id, first, right)).await;
        assert_eq!((&sent["outcome"], &sent["server"]), (&json!("balanced"), &json!("b1")), "{sent}");
        assert_eq!((&sent["addr"], sent.get("token")), (&json!("b1.example:25565"), None));
        let found = ask(&mut proxy, json!({"op": "find", "id": format!("f-{id}"), "player": id})).await;
        assert_eq!(found["outcome"], "none");
    }
    let command = json!({"op": "dispatch", "id": "c1", "player": "c1", "may_be_placed": false});
    assert_eq!(ask(&mut proxy, command).await["reason"], "not_allowed");
    // The lobby asks for its players, and keeps who has no right to go.
    sees(&mut lobby, "ann").await;
    assert_eq!(ask(&mut lobby, join("j4", false, false)).await["reason"], "source_off");
    let places = ask(&mut lobby, json!({"op": "places", "id": "s2", "count": 5})).await;
    assert_eq!(places["outcome"], "error", "{places}");
}

#[tokio::test]
async fn cli_3_a_load_beyond_all_numbers_costs_no_answer() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 1})).await;
    sees(&mut proxy, "alice").await;
    let load = json!({"op": "load", "id": "l1", "players": u64::MAX, "soft_cap": u64::MAX});
    assert_eq!(ask(&mut backend, load).await["outcome"], "ok");
    assert_eq!(ask(&mut backend, json!({"op": "redeem", "id": "r1", "player": "alice"})).await["outcome"], "landed");
    assert_eq!(ask(&mut backend, json!({"op": "status", "id": "t1"})).await["outcome"], "ok");
}
