use std::ffi::OsStr;

use maitred_testkit::private_store::{PrivateStore, SERVER_VARIABLE, SERVERS, binary};
use maitred_testkit::store::listens_unix;
use rustix::process::{Pid, test_kill_process};

// CLI-2: without a server people are told what to install, not left with a failing connection.
#[test]
fn cli_2_a_missing_server_is_named() {
    let text = binary(None, Some(OsStr::new("/nowhere"))).expect_err("there is no server");
    assert!(SERVERS.iter().all(|server| text.contains(server)), "{text}");
    assert!(text.contains("make demo") && text.contains(SERVER_VARIABLE), "{text}");
    let text = binary(Some(OsStr::new("/nowhere/redis")), None).expect_err("there is no such file");
    assert!(text.contains("/nowhere/redis"), "{text}");
}

// CLI-2: a store that outlives its command leaves people with servers they never asked for.
#[tokio::test]
async fn cli_2_a_private_store_answers_and_is_gone_after_its_drop() {
    let store = PrivateStore::start().await.expect("one of the servers is on PATH");
    let socket = store.url().strip_prefix("unix://").expect("a socket").to_owned();
    let pid = store.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a process id");
    assert!(listens_unix(socket.as_ref()), "the server answers");
    drop(store);
    assert!(!listens_unix(socket.as_ref()) && !std::path::Path::new(&socket).exists(), "nobody listens any more");
    assert!(test_kill_process(pid).is_err(), "the process is gone");
}
