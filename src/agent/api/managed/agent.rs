use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::api::setup::{Setup, runtime};
use crate::agent::config::Config;
use crate::envelope::Keyring;
use crate::error::{Error, Result};
use crate::node::ControlEntry;

use super::kept::Keep;
use super::source::ConfigSource;
use super::state::{ManagedState, Reloaded};
use super::turn::{Turn, broken};

/// Time between two looks at a config that cannot be used.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// An agent that [`Managed`] can keep: [`BackendAgent`](crate::agent::BackendAgent), [`ProxyAgent`](crate::agent::ProxyAgent),
/// [`RouterAgent`](crate::agent::RouterAgent), [`Agent`](crate::agent::Agent).
pub trait Kept: Keep {}

impl<A: Keep> Kept for A {}

/// Keeps an agent running for an application that must not go down with it: starts it from a [`ConfigSource`], tries again where
/// that cannot work yet, and takes a changed config over while the process goes on (POL-3).
///
/// Nothing here fails into the host. What is wrong shows in [`state`](Self::state):
///
/// | what | state | goes on |
/// |---|---|---|
/// | the config has problems | `Disabled` | every 3 s, or at a reload |
/// | the store cannot be reached or refuses, a script cannot be loaded, a subscription fails | `Disabled` | by itself |
/// | the secret is missing or short, node id or store URL are missing | `Refused` | at a reload |
/// | a script does not match its pin | `Refused`, `for_good` | with another build |
/// | `enabled: false` | `Off` | at a reload |
///
/// A kill switch is no state: the agent stays a member, and requests answer with it.
///
/// ```no_run
/// use maitred::agent::{ConfigSource, Managed, ProxyAgent};
/// use maitred::node::LoadSample;
///
/// # async fn run() {
/// let proxy: Managed<ProxyAgent> =
///     Managed::start(ConfigSource::file("network.yml"), |setup| setup.proxy(LoadSample::default));
/// if let Some(proxy) = proxy.agent() {
///     // dispatch; where there is none, place players without this library
/// }
/// // After the file was changed:
/// match proxy.reload().await {
///     Ok(done) => println!("{done:?}"),
///     Err(problems) => println!("the old config goes on: {problems}"),
/// }
/// # }
/// ```
///
/// Dropping it stops everything without leaving; [`stop`](Self::stop) leaves.
pub struct Managed<A: Kept> {
    inner: Arc<Inner<A>>,
}

type Wiring<A> = Box<dyn Fn(Setup) -> Result<A> + Send + Sync>;

struct Inner<A> {
    source: ConfigSource,
    wiring: Wiring<A>,
    agent: ArcSwapOption<A>,
    state: watch::Sender<ManagedState>,
    /// Changes go one after the other.
    turn: Mutex<Turn>,
    /// There is another agent to follow.
    changed: Notify,
    runtime: OnceLock<Handle>,
    is_kept: AtomicBool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl<A: Kept> Managed<A> {
    /// Starts keeping an agent. `wiring` makes it what it is, for example `|setup| setup.proxy(load)`; it is called again
    /// for each new agent, so an inventory goes in behind an [`Arc`] ([`Setup::backend_sharing`]) and keeps its places,
    /// and services of the application's own are registered there.
    ///
    /// Returns at once and never fails: what goes wrong is a state. Needs a tokio runtime around it; without one it is
    /// refused, and a reload inside of one starts it.
    pub fn start(source: ConfigSource, wiring: impl Fn(Setup) -> Result<A> + Send + Sync + 'static) -> Self {
        let inner = Arc::new(Inner {
            source,
            wiring: Box::new(wiring),
            agent: ArcSwapOption::empty(),
            state: watch::channel(ManagedState::Starting).0,
            turn: Mutex::default(),
            changed: Notify::new(),
            runtime: OnceLock::new(),
            is_kept: AtomicBool::new(false),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        match inner.runtime() {
            Ok(runtime) => {
                let first = Arc::clone(&inner);
                inner.tasks.spawn_on(
                    async move {
                        // The error is in the state.
                        let _ = first.take_turn().await;
                    },
                    &runtime,
                );
            }
            Err(error) => inner.set_state(ManagedState::Refused { why: error.to_string(), for_good: false }),
        }
        Self { inner }
    }

    /// The agent that runs now. There is none while the config cannot be used or is switched off. One that is replaced
    /// answers that it is shutting down, so ask again rather than keeping it.
    pub fn agent(&self) -> Option<Arc<A>> {
        self.inner.agent.load_full()
    }

    /// How far it is; changes can be awaited. Told anew for each new agent.
    pub fn state(&self) -> watch::Receiver<ManagedState> {
        self.inner.state.subscribe()
    }

    /// Reads the source again and takes it over.
    ///
    /// - What can change while an agent runs is swapped in ([`config`](crate::agent::config) has the table); a request under way
    ///   ends as it began.
    /// - For anything else, and for another secret, the agent leaves and a new one is started. Its inventory stays: places
    ///   that are held go back to it, and one whose redeem or issue is not answered yet goes back once that is known.
    /// - `enabled: false` leaves and stops; back to `true` starts. A file that does not say it is a problem.
    ///
    /// Errors with what is wrong with the config or the secret; an agent that runs then goes on as it was. Errors also where
    /// `wiring` could not make the new agent, and then none runs until a try succeeds.
    /// Bounded by about 15 s: a source that gives nothing within 5 s is refused as a problem, and so is every reload for as
    /// long as it goes on blocking; leaving takes up to 10 s. Cancel safe: a change that began goes on.
    pub async fn reload(&self) -> Result<Reloaded> {
        self.inner.take_turn().await
    }

    /// Leaves the fleet and ends; a source that blocks is not waited for, and a reload under way there answers
    /// [`Error::ShuttingDown`]. Bounded by about 10 s. Safe to call again.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        let inner = Arc::clone(&self.inner);
        let stopping = async move {
            let mut turn = inner.turn.lock().await;
            turn.over = Some(Error::ShuttingDown);
            inner.part().await;
            inner.set_state(ManagedState::Stopped);
        };
        match self.inner.runtime() {
            Ok(runtime) => {
                if let Err(error) = self.inner.tasks.spawn_on(stopping, &runtime).await {
                    tracing::error!(%error, "the agent could not be stopped");
                }
            }
            // Nothing was ever started.
            Err(_) => self.inner.set_state(ManagedState::Stopped),
        }
    }
}

impl<A: Kept> Inner<A> {
    fn runtime(&self) -> Result<Handle> {
        if let Some(handle) = self.runtime.get() {
            return Ok(handle.clone());
        }
        let handle = runtime()?;
        Ok(self.runtime.get_or_init(|| handle).clone())
    }

    fn set_state(&self, state: ManagedState) {
        self.state.send_if_modified(|now| {
            let changed = *now != state;
            if changed {
                match &state {
                    ManagedState::Disabled { why } => tracing::warn!(%why, "disabled; tried again"),
                    ManagedState::Refused { why, for_good } => tracing::error!(%why, for_good, "refused"),
                    state => tracing::info!(?state, "managed agent"),
                }
                *now = state;
            }
            changed
        });
    }

    /// Starts the task that keeps the agent, where none runs. Called inside a turn.
    fn keep(self: &Arc<Self>) -> Result<()> {
        let runtime = self.runtime()?;
        if !self.is_kept.swap(true, Ordering::AcqRel) {
            let (inner, stop) = (Arc::clone(self), self.stop.clone());
            let keeping = async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = inner.run() => {}
                }
            };
            self.tasks.spawn_on(keeping, &runtime);
        }
        Ok(())
    }

    /// Follows the agent and looks at the config again, for as long as there is one of them to do.
    async fn run(self: &Arc<Self>) {
        loop {
            let agent = self.agent.load_full();
            let waits = agent.is_none() && self.is_disabled();
            if agent.is_none() && !waits {
                // POL-2: switched off there is no task. Inside a turn, so that a reload starts it again.
                let _turn = self.turn.lock().await;
                if self.agent.load().is_none() && !self.is_disabled() {
                    self.is_kept.store(false, Ordering::Release);
                    return;
                }
                continue;
            }
            let follow = async {
                match &agent {
                    Some(agent) => agent.follow(&|state| self.on_state(agent, state)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                error = follow => self.give_up(agent.as_ref(), error).await,
                () = sleep(LOOK_AGAIN), if waits => {
                    let _ = self.take_turn().await;
                }
            }
        }
    }

    fn is_disabled(&self) -> bool {
        matches!(*self.state.borrow(), ManagedState::Disabled { .. })
    }

    /// The agent says how it is. One that was replaced meanwhile says nothing any more.
    fn on_state(&self, agent: &Arc<A>, state: ManagedState) {
        if self.agent.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, agent)) {
            self.set_state(state);
        }
    }

    /// `agent` can never work. One that was replaced meanwhile does not matter any more.
    async fn give_up(&self, agent: Option<&Arc<A>>, error: Error) {
        let mut turn = self.turn.lock().await;
        if self.agent.load().as_ref().map(Arc::as_ptr) != agent.map(Arc::as_ptr) {
            return;
        }
        self.part().await;
        self.set_state(ManagedState::Refused { why: error.to_string(), for_good: true });
        turn.over = Some(error);
    }

    /// One change, in a task of its own: neither a caller that goes away nor a panic of the application's code in it
    /// leaves half of it behind.
    async fn take_turn(self: &Arc<Self>) -> Result<Reloaded> {
        let inner = Arc::clone(self);
        let turn = self.tasks.spawn_on(async move { inner.change().await }, &self.runtime()?);
        match turn.await {
            Ok(done) => done,
            Err(error) => {
                let error = broken(&error);
                let _turn = self.turn.lock().await;
                if self.agent.load().is_none() {
                    self.fail(ManagedState::Disabled { why: error.to_string() })?;
                }
                Err(error)
            }
        }
    }

    /// Nothing runs, and this is why.
    fn fail(self: &Arc<Self>, state: ManagedState) -> Result<()> {
        self.set_state(state);
        self.changed.notify_one();
        self.keep()
    }

    async fn change(self: &Arc<Self>) -> Result<Reloaded> {
        let mut turn = self.turn.lock().await;
        if let Some(error) = &turn.over {
            return Err(error.clone());
        }
        let (inner, runtime) = (Arc::clone(self), self.runtime()?);
        let is_wanted = self.agent.load().is_some() || self.is_disabled();
        let given = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(Error::ShuttingDown),
            given = turn.read(&runtime, move || inner.source.give(is_wanted)) => given,
        };
        let agent = self.agent.load_full();
        let (config, keyring) = match given {
            Ok(Some(given)) => given,
            Ok(None) => {
                let ran = self.part().await;
                self.set_state(ManagedState::Off);
                return Ok(if ran { Reloaded::SwitchedOff } else { Reloaded::Unchanged });
            }
            Err(unusable) => {
                if agent.is_none() {
                    self.fail(unusable.state())?;
                }
                return Err(unusable.into());
            }
        };
        let Some(agent) = agent else {
            self.begin(&mut turn, config, keyring, None)?;
            return Ok(Reloaded::Started);
        };
        let changed = turn.config.changed(&config);
        let same_keys = turn.kids == keyring.accepted_kids();
        if same_keys && changed.iter().all(|section| Config::is_hot(section)) {
            if changed.is_empty() {
                return Ok(Reloaded::Unchanged);
            }
            agent.set_file(&config)?;
            turn.config = config;
            return Ok(Reloaded::Swapped { changed });
        }
        let push = agent.push().filter(|_| turn.is_believed_with(&config, &keyring));
        drop(agent);
        self.part().await;
        self.begin(&mut turn, config, keyring, push)?;
        Ok(Reloaded::Restarted { changed })
    }

    /// Starts an agent; `push` is what was in force in the one before it.
    fn begin(
        self: &Arc<Self>,
        turn: &mut Turn,
        config: Config,
        keyring: Keyring,
        push: Option<ControlEntry>,
    ) -> Result<()> {
        let kids = keyring.accepted_kids();
        let started = Setup::with_keyring(config.clone(), keyring).and_then(&self.wiring);
        match started {
            Ok(agent) => {
                if let Some(push) = push {
                    agent.carry(&push);
                }
                *turn = Turn::of(config, kids);
                self.agent.store(Some(Arc::new(agent)));
                // Told also where it was the state before: there is another agent to ask.
                self.state.send_replace(ManagedState::Starting);
                self.changed.notify_one();
                self.keep()
            }
            Err(error) => {
                let why = error.to_string();
                if let Error::PinMismatch { .. } = error {
                    turn.over = Some(error.clone());
                    self.fail(ManagedState::Refused { why, for_good: true })?;
                } else {
                    self.fail(ManagedState::Disabled { why })?;
                }
                Err(error)
            }
        }
    }

    /// The agent leaves. False where there is none.
    async fn part(&self) -> bool {
        let Some(agent) = self.agent.load_full() else { return false };
        agent.end().await;
        self.agent.store(None);
        self.changed.notify_one();
        if let Ok(runtime) = self.runtime() {
            self.tasks.spawn_on(agent.wind_down(), &runtime);
        }
        true
    }
}

impl<A: Kept> Drop for Managed<A> {
    fn drop(&mut self) {
        self.inner.stop.cancel();
        self.inner.agent.store(None);
    }
}

impl<A: Kept> fmt::Debug for Managed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Managed({:?})", *self.inner.state.borrow())
    }
}
