//! A layer that keeps every span of this process with its fields and the spans around it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The fields of a span or an event.
#[derive(Debug, Clone, Default)]
pub struct Fields(pub BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// A span that is over.
#[derive(Debug, Clone)]
pub struct Ended {
    pub name: &'static str,
    /// The names of the spans around it.
    pub inside: Vec<&'static str>,
    pub fields: BTreeMap<&'static str, String>,
}

#[derive(Debug, Default)]
struct Log {
    spans: Vec<Ended>,
    events: Vec<Fields>,
}

/// What this process traced.
#[derive(Debug, Default, Clone)]
pub struct Spans(Arc<Mutex<Log>>);

impl Spans {
    /// The subscriber of this process, for spans and events of the library alone.
    pub fn installed() -> Self {
        static INSTALLED: OnceLock<Spans> = OnceLock::new();
        let install = || {
            let spans = Self::default();
            let ours = Targets::new().with_target("maitred", LevelFilter::TRACE);
            tracing_subscriber::registry().with(spans.clone().with_filter(ours)).init();
            spans
        };
        INSTALLED.get_or_init(install).clone()
    }

    /// The spans of that name that are over and have that field.
    pub fn ended(&self, name: &str, field: &str, value: &str) -> Vec<Ended> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |span: &&Ended| span.name == name && span.fields.get(field).is_some_and(|found| found == value);
        log.spans.iter().filter(fits).cloned().collect()
    }

    /// Every value of every field of every span and event.
    pub fn texts(&self) -> Vec<String> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_spans = log.spans.iter().flat_map(|span| span.fields.values());
        of_spans.chain(log.events.iter().flat_map(|event| event.0.values())).cloned().collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).expect("a new span").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("an open span");
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).events.push(fields);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("a span that closes");
        let fields = span.extensions().get::<Fields>().cloned().unwrap_or_default().0;
        let inside = span.scope().skip(1).map(|around| around.name()).collect();
        let ended = Ended { name: span.name(), inside, fields };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).spans.push(ended);
    }
}
