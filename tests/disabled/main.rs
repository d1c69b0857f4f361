//! POL-2: switched off means off. Alone in its binary, because it counts the threads of the process.

#[path = "../fixtures/mod.rs"]
mod fixtures;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, SECRET, config, keyring, zone};
use maitred::Error;
use maitred::agent::Setup;
use maitred::agent::config::{Config, SecretUrl};
use maitred::envelope::Secret;
use maitred::error::Class;
use maitred::node::LoadSample;
use maitred_testkit::wait::eventually;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc").count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// A store that would notice whoever connects.
struct Ear(TcpListener);

impl Ear {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("non-blocking");
        Self(listener)
    }

    fn url(&self) -> String {
        format!("redis://{}", self.0.local_addr().expect("an address"))
    }

    fn heard(&self) -> bool {
        match self.0.accept() {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Tries to start everything that the config allows, and hands back why nothing was started.
fn start(config: &Config, from_env: bool) -> Error {
    let make = || {
        if from_env { Setup::from_env(config.clone()) } else { Setup::with_keyring(config.clone(), keyring()) }
    };
    let errors = [
        make().and_then(|setup| setup.backend(Stock::new(1, 1), LoadSample::default)).err(),
        make().and_then(|setup| setup.proxy(LoadSample::default)).err(),
        make().and_then(|setup| setup.node(LoadSample::default)).err(),
        make().and_then(|setup| setup.router()).err(),
    ];
    let mut last = None;
    for error in errors {
        last = Some(error.expect("nothing is started"));
    }
    last.expect("four tries")
}

fn enabled(url: &str) -> Config {
    config("n1", "backend", url)
}

#[test]
fn pol_2_disabled_is_no_connection_no_task_no_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ear = Ear::new();
    let before = threads();

    // Without a runtime there is an error and no panic (POL-3), whatever else is right.
    assert!(matches!(start(&enabled(&ear.url()), false), Error::OutOfBounds { what: "runtime", .. }));

    runtime.block_on(async {
        assert_eq!(tasks(), 0);
        let off = Config { enabled: false, ..enabled(&ear.url()) };
        for from_env in [true, false] {
            assert!(matches!(start(&off, from_env), Error::Disabled));
        }
        // Off needs nothing else to be right, and not even the secret is looked for.
        let mut bare = Config::default();
        bare.security.secret_env = "MAITRED_NO_SUCH_VARIABLE".to_owned();
        assert!(!bare.enabled, "the default");
        assert!(matches!(start(&bare, true), Error::Disabled));

        let mut no_secret = enabled(&ear.url());
        no_secret.security.secret_env = "MAITRED_NO_SUCH_VARIABLE".to_owned();
        let error = start(&no_secret, true);
        assert!(
            matches!(&error, Error::Secret { variable, .. } if variable == "MAITRED_NO_SUCH_VARIABLE"),
            "{error:?}"
        );
        assert_eq!(error.class(), Class::Caller);
        // ENV-2: PATH is set and is no secret.
        no_secret.security.secret_env = "PATH".to_owned();
        let error = start(&no_secret, true);
        assert!(matches!(error, Error::Secret { .. }) && error.class() == Class::Caller, "{error:?}");
        let path = std::env::var("PATH").expect("PATH");
        assert!(!error.to_string().contains(&path) && !format!("{error:?}").contains(&path));
        let short = Secret::from_base64("MAITRED_SECRET", &SECRET[..40]).expect_err("30 bytes");
        assert!(matches!(&short, Error::Secret { .. }) && !short.to_string().contains(&SECRET[..40]));

        let mut no_id = enabled(&ear.url());
        no_id.node.id = None;
        let mut no_url = enabled(&ear.url());
        no_url.store.url = None;
        let mut out_of_bounds = enabled(&ear.url());
        out_of_bounds.heartbeat.interval_ms = 1;
        for (wrong, path) in [(no_id, "node.id"), (no_url, "store.url"), (out_of_bounds, "heartbeat.intervalMs")] {
            match start(&wrong, false) {
                Error::Config { problems } => {
                    assert!(problems.iter().any(|problem| problem.contains(path)), "{problems:?}")
                }
                other => panic!("{other:?}"),
            }
        }
        let mut bad_url = enabled(&ear.url());
        bad_url.store.url = SecretUrl::new("redis://cook:hunter2@127.0.0.1:99999");
        let error = start(&bad_url, false);
        assert!(matches!(error, Error::StoreUrl { .. }) && error.class() == Class::Caller, "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));

        // Let whatever might have been started show itself.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(tasks(), 0, "a task was started");
        assert_eq!(threads(), before, "a thread was started");
        assert!(!ear.heard(), "somebody connected");

        // The same looks do see an agent that is enabled.
        let agent = Setup::with_keyring(enabled(&ear.url()), keyring()).expect("valid").node(LoadSample::default);
        assert!(tasks() > 0);
        eventually("it connects", LIMIT, async || ear.heard()).await;
        assert_eq!(zone(), agent.as_ref().expect("started").config().zone);
        drop(agent);
        eventually("its tasks end with it", LIMIT, async || tasks() == 0).await;
        assert_eq!(threads(), before, "an agent lives on the application's runtime");
    });
}
