//! Names to addresses by the operating system, whose call blocks and cannot be taken back.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::connect::Resolver;
use super::decision::words_of;

/// Most lookups under way at a time in the process, each on a thread of its own.
const THREADS_MAX: usize = 16;
/// Most names that wait for a thread.
const WAITING_MAX: usize = 256;
/// A lookup that takes longer is taken for one that hangs.
const HANGS_AFTER: Duration = Duration::from_secs(2);

/// The operating system's resolver. All logins that ask for the same name share one lookup, and a name whose lookup hangs
/// holds up no other: a process has at most 16 lookups under way, on threads that neither belong to the runtime nor
/// delay its end. Where all 16 hang, other names fail at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        static SYSTEM: LazyLock<Lookups> = LazyLock::new(|| {
            let look_up = |host: &str, port| Ok((host, port).to_socket_addrs()?.collect());
            Lookups::new(Limits { threads: THREADS_MAX, waiting: WAITING_MAX, hangs_after: HANGS_AFTER }, look_up)
        });
        SYSTEM.resolve(host, port).await
    }
}

/// How much blocking lookups may hold.
#[derive(Debug, Clone, Copy)]
struct Limits {
    threads: usize,
    waiting: usize,
    hangs_after: Duration,
}

type Asked = (String, u16);
type Found = io::Result<Vec<SocketAddr>>;
type LookUp = dyn Fn(&str, u16) -> Found + Send + Sync;

/// Blocking lookups, at most one for each name and port.
struct Lookups(Arc<Inner>);

struct Inner {
    limits: Limits,
    look_up: Box<LookUp>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All that wait or are under way.
    lookups: HashMap<Asked, Lookup>,
    /// Those that wait for a thread. Empty while a thread is to be had.
    waiting: VecDeque<Asked>,
    threads: usize,
}

struct Lookup {
    answer: watch::Sender<Option<Arc<Found>>>,
    /// `None` while it waits.
    since: Option<Instant>,
}

impl Lookups {
    fn new(limits: Limits, look_up: impl Fn(&str, u16) -> Found + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { limits, look_up: Box::new(look_up), state: Mutex::default() }))
    }

    /// Cancel safe: the lookup goes on for the others who wait for it.
    async fn resolve(&self, host: &str, port: u16) -> Found {
        let mut answer = self.ask(host, port)?;
        let found = answer.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match found.as_deref() {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Err(io::Error::other("the lookup ended without an answer")),
        }
    }

    /// Joins the lookup of this name, or begins it.
    fn ask(&self, host: &str, port: u16) -> io::Result<watch::Receiver<Option<Arc<Found>>>> {
        let (inner, asked) = (&self.0, (host.to_owned(), port));
        let limits = inner.limits;
        let mut state = inner.state();
        if let Some(lookup) = state.lookups.get(&asked) {
            if lookup.since.is_none() && state.all_hang(limits) {
                return Err(hanging(limits));
            }
            return Ok(lookup.answer.subscribe());
        }
        let (answer, receiver) = watch::channel(None);
        if state.threads < limits.threads {
            let (inner, first) = (Arc::clone(inner), asked.clone());
            thread::Builder::new().name("maitred-dns".to_owned()).spawn(move || inner.work(first))?;
            state.threads += 1;
            state.lookups.insert(asked, Lookup { answer, since: Some(Instant::now()) });
            return Ok(receiver);
        }
        if state.all_hang(limits) {
            return Err(hanging(limits));
        }
        if state.waiting.len() >= limits.waiting {
            state.forget_unwanted();
        }
        if state.waiting.len() >= limits.waiting {
            let text = format!("not looked up: {} names wait already", limits.waiting);
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        }
        state.waiting.push_back(asked.clone());
        state.lookups.insert(asked, Lookup { answer, since: None });
        Ok(receiver)
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up `asked`, and then whatever waits.
    fn work(&self, mut asked: Asked) {
        loop {
            let looked = catch_unwind(AssertUnwindSafe(|| (self.look_up)(&asked.0, asked.1)));
            let found = looked.unwrap_or_else(|panic| Err(io::Error::other(words_of(&*panic))));
            match self.state().next_after(&asked, found) {
                Some(next) => asked = next,
                None => return,
            }
        }
    }
}

impl State {
    /// Hands the answer to all who wait for it, and the thread to the next name; without one the thread ends.
    fn next_after(&mut self, asked: &Asked, found: Found) -> Option<Asked> {
        if let Some(lookup) = self.lookups.remove(asked) {
            lookup.answer.send_replace(Some(Arc::new(found)));
        }
        while let Some(next) = self.waiting.pop_front() {
            match self.lookups.get_mut(&next).filter(|lookup| !lookup.answer.is_closed()) {
                Some(lookup) => {
                    lookup.since = Some(Instant::now());
                    return Some(next);
                }
                None => drop(self.lookups.remove(&next)),
            }
        }
        self.threads = self.threads.saturating_sub(1);
        None
    }

    /// No thread is free, and none has finished anything lately.
    fn all_hang(&self, limits: Limits) -> bool {
        let hangs = |lookup: &&Lookup| lookup.since.is_some_and(|since| since.elapsed() >= limits.hangs_after);
        self.lookups.values().filter(hangs).count() >= limits.threads
    }

    /// Drops the waiting names that nobody wants any more.
    fn forget_unwanted(&mut self) {
        let Self { lookups, waiting, .. } = self;
        lookups.retain(|_, lookup| lookup.since.is_some() || !lookup.answer.is_closed());
        waiting.retain(|asked| lookups.contains_key(asked));
    }
}

fn hanging(limits: Limits) -> io::Error {
    let text = format!("not looked up: {} lookups of other names hang", limits.threads);
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use futures_util::future::{FutureExt, join_all};

    use super::*;

    const PATIENT: Duration = Duration::from_secs(3_600);

    /// Lookups of which those of names with `hung` in them block until the sender is dropped, and how many were begun.
    fn scene(limits: Limits) -> (Lookups, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (release, held) = mpsc::channel::<()>();
        let (held, begun) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&begun);
        let lookups = Lookups::new(limits, move |host, port| {
            counted.fetch_add(1, Ordering::SeqCst);
            assert_ne!(host, "panics", "words");
            if host.contains("hung") {
                // Whoever has the lock blocks on the channel, the others on the lock.
                let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
            }
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        });
        (lookups, release, begun)
    }

    fn limits(threads: usize, waiting: usize, hangs_after: Duration) -> Limits {
        Limits { threads, waiting, hangs_after }
    }

    // PLC-4: else one name that hangs takes a thread for each login, until no other name can be looked up.
    #[tokio::test]
    async fn plc_4_all_who_wait_for_one_name_share_a_thread_and_other_names_go_on() {
        let (lookups, release, begun) = scene(limits(2, 0, PATIENT));
        let waiters = join_all((0..700).map(|_| lookups.resolve("hung", 1)));
        tokio::pin!(waiters);
        assert!(waiters.as_mut().now_or_never().is_none());
        for port in 1..50 {
            let found = lookups.resolve("other", port).await;
            assert_eq!(found.expect("it is not held up"), [SocketAddr::from(([127, 0, 0, 1], port))]);
        }
        assert_eq!(lookups.0.state().threads, 1, "one hangs, and a thread that has nothing to do ends");
        drop(release);
        assert!(waiters.await.into_iter().all(|found| found.is_ok()));
        assert_eq!(begun.load(Ordering::SeqCst), 50);
    }

    // PLC-3: else a login waits for its whole time although nothing can come of it.
    #[tokio::test]
    async fn plc_3_where_all_threads_hang_a_name_fails_at_once() {
        let (lookups, release, _) = scene(limits(2, 8, Duration::ZERO));
        let hung = [lookups.resolve("hung-1", 1), lookups.resolve("hung-2", 1)];
        let waiters = join_all(hung);
        tokio::pin!(waiters);
        assert!(waiters.as_mut().now_or_never().is_none());
        let error = lookups.resolve("other", 1).now_or_never().expect("at once").expect_err("no thread");
        assert!(error.to_string().contains("2 lookups of other names hang"), "{error}");
        drop(release);
        assert!(waiters.await.into_iter().all(|found| found.is_ok()));
        assert!(lookups.resolve("other", 1).await.is_ok(), "it recovers");
    }

    #[tokio::test]
    async fn plc_4_names_wait_for_a_thread_and_too_many_fail_at_once() {
        let (lookups, release, begun) = scene(limits(1, 2, PATIENT));
        let mut hung = Box::pin(lookups.resolve("hung", 1));
        let (mut left, mut first) = (Box::pin(lookups.resolve("left", 1)), Box::pin(lookups.resolve("first", 1)));
        for waiter in [&mut hung, &mut left, &mut first] {
            assert!(waiter.now_or_never().is_none());
        }
        let error = lookups.resolve("third", 1).now_or_never().expect("at once").expect_err("full");
        assert!(error.to_string().contains("2 names wait already"), "{error}");
        drop(left);
        let mut third = Box::pin(lookups.resolve("third", 1));
        assert!((&mut third).now_or_never().is_none(), "one that nobody wants makes room");
        drop(first);
        drop(release);
        assert!(hung.await.is_ok() && third.await.is_ok());
        assert_eq!(begun.load(Ordering::SeqCst), 2, "what nobody wants any more is not looked up");
    }

    // PLC-7: else a proxy that is told to stop stays until the last lookup has run into its own time limit.
    #[test]
    fn plc_7_a_lookup_that_hangs_delays_no_end() {
        let (lookups, release, _) = scene(limits(1, 0, PATIENT));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        assert!(runtime.block_on(async { lookups.resolve("hung", 1).now_or_never() }).is_none());
        // Would wait for the lookup, which is released only below.
        drop(runtime);
        assert_eq!(lookups.0.state().threads, 1, "it still hangs");
        drop(release);
    }

    #[tokio::test]
    async fn plc_4_a_lookup_that_panics_is_a_failure_and_gives_its_thread_back() {
        let (lookups, _release, _) = scene(limits(1, 0, PATIENT));
        let error = lookups.resolve("panics", 1).await.expect_err("no answer");
        assert!(error.to_string().contains("words"), "{error}");
    }

    #[tokio::test]
    async fn plc_4_the_system_knows_itself() {
        let found = SystemResolver.resolve("localhost", 7).await.expect("every system does");
        assert!(found.iter().any(|address| address.ip().is_loopback() && address.port() == 7));
    }
}
