//! The frame parser: if it loses its place, the fault proxy drops the wrong reply and counts the wrong command.

use maitred_testkit::lane::{Lane, Settled, labels};
use maitred_testkit::resp::{Kind, Reply, reply, request};

const REPLIES: &[(&[u8], Kind, Option<&str>)] = &[
    (b"+OK\r\n", Kind::Value, None),
    (b"-NOSCRIPT No matching script\r\n", Kind::Error, None),
    (b":-12\r\n", Kind::Value, None),
    (b"$-1\r\n", Kind::Value, None),
    (b"$0\r\n\r\n", Kind::Value, None),
    (b"$7\r\nab\r\n+cd\r\n", Kind::Value, None),
    (b"*-1\r\n", Kind::Array, None),
    (b"*0\r\n", Kind::Array, None),
    (b"*2\r\n$7\r\nCLAIMED\r\n*2\r\n:1\r\n*1\r\n$-1\r\n", Kind::Array, Some("claimed")),
    (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\r\n\r\n", Kind::Array, Some("message")),
    (b"*1\r\n+FENCED\r\n", Kind::Array, Some("fenced")),
    (b"_\r\n", Kind::Value, None),
    (b"#t\r\n", Kind::Value, None),
    (b",3.25\r\n", Kind::Value, None),
    (b"(3492890328409238509324850943850943825024385\r\n", Kind::Value, None),
    (b"!5\r\nERR x\r\n", Kind::Error, None),
    (b"=8\r\ntxt:text\r\n", Kind::Value, None),
    (b"~2\r\n:1\r\n:2\r\n", Kind::Value, None),
    (b"%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n_\r\n", Kind::Value, None),
    (b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", Kind::Push, Some("message")),
    (b"|1\r\n+ttl\r\n:9\r\n*1\r\n$2\r\nok\r\n", Kind::Array, Some("ok")),
    (b"*1\r\n|1\r\n+ttl\r\n:9\r\n:5\r\n", Kind::Array, None),
];

#[test]
fn every_reply_type_is_read_whole_and_never_early() {
    for (frame, kind, word) in REPLIES {
        for end in 0..frame.len() {
            assert_eq!(reply(&frame[..end]), Ok(None), "{:?}", String::from_utf8_lossy(&frame[..end]));
        }
        let mut with_more = frame.to_vec();
        with_more.extend_from_slice(b"+NEXT\r\n");
        let wanted = Reply { len: frame.len(), kind: *kind, word: word.map(str::to_owned) };
        assert_eq!(reply(&with_more), Ok(Some(wanted)), "{:?}", String::from_utf8_lossy(frame));
    }
}

#[test]
fn what_is_no_reply_is_refused() {
    for bytes in [&b"?\r\n"[..], b"$x\r\n", b"$-2\r\n", b"$2\r\nabcd", b"*1\r\n@\r\n", b"$?\r\n", b"HTTP/1.1 200\r\n"] {
        assert!(reply(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn commands_are_read_whole_in_both_forms() {
    let pipelined = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\nping  now\r\n\r\n";
    let mut at = 0;
    let mut read = Vec::new();
    while let Some(command) = request(&pipelined[at..]).unwrap() {
        at += command.len;
        read.push(command.args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>());
    }
    assert_eq!(at, pipelined.len());
    assert_eq!(read, [vec!["GET", "k"], vec!["PING"], vec!["ping", "now"], vec![]]);

    let whole = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\n";
    for end in 0..whole.len() {
        assert_eq!(request(&whole[..end]), Ok(None));
    }
    assert_eq!(request(whole).unwrap().unwrap().args[2], b"\r\n\r\n");
    assert!(request(b"*1\r\n:1\r\n").is_err());
    assert!(request(b"*1\r\n$-1\r\n").is_err());
}

#[test]
fn commands_are_counted_by_name_sha_and_channel() {
    let of = |line: &str| labels(&line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
    assert_eq!(of("evalsha ABC 1 k"), ["EVALSHA", "EVALSHA abc"]);
    assert_eq!(of("publish maitred:{eu}:inbox:P-1 x"), ["PUBLISH", "PUBLISH maitred:{eu}:inbox:P-1"]);
    assert_eq!(of("hgetall k"), ["HGETALL"]);
    assert_eq!(labels(&[]), Vec::<String>::new());
}

#[test]
fn replies_find_their_command_between_pushes_and_confirmations() {
    let frame = |text: &str| reply(text.as_bytes()).unwrap().unwrap();
    let answer = |name: &str, push| Settled::Answer { labels: vec![name.to_owned()], push };
    let confirmed = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";

    let mut resp3 = Lane::default();
    for (name, args) in [("GET", 2), ("SUBSCRIBE", 3), ("PING", 1), ("SUBSCRIBE", 2), ("UNSUBSCRIBE", 1)] {
        resp3.sent(vec![name.to_owned()], args);
    }
    assert_eq!(resp3.settle(&frame(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")), Settled::Push);
    assert_eq!(resp3.settle(&frame("$1\r\nv\r\n")), answer("GET", false));
    assert_eq!(resp3.settle(&frame(confirmed)), answer("SUBSCRIBE", true));
    assert_eq!(resp3.settle(&frame(confirmed)), answer("SUBSCRIBE", true));
    assert_eq!(resp3.settle(&frame("+PONG\r\n")), answer("PING", false));
    assert_eq!(resp3.settle(&frame("-NOPERM no\r\n")), answer("SUBSCRIBE", false));
    let left = ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n";
    assert_eq!(resp3.settle(&frame(left)), answer("UNSUBSCRIBE", true));
    assert_eq!(resp3.settle(&frame(left)), Settled::Push, "the second channel of the same UNSUBSCRIBE");

    let mut resp2 = Lane::default();
    resp2.sent(vec!["LRANGE".to_owned()], 4);
    resp2.sent(vec!["SUBSCRIBE".to_owned()], 2);
    resp2.sent(vec!["PING".to_owned()], 1);
    let message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n";
    assert_eq!(resp2.settle(&frame(message)), answer("LRANGE", false), "a list that reads like a message");
    assert_eq!(resp2.settle(&frame("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")), answer("SUBSCRIBE", false));
    assert_eq!(resp2.settle(&frame(message)), Settled::Push);
    assert_eq!(resp2.settle(&frame("*2\r\n$4\r\npong\r\n$0\r\n\r\n")), answer("PING", false));
}
