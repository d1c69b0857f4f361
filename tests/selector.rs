//! The choice of a backend (SEL-1 to SEL-6) as what it is: a function of one moment. When one of these fails, players
//! crowd one backend, are sent to one that cannot take them, or two runs of the same fleet cannot be compared.

#[path = "selector/curves.rs"]
mod curves;
#[path = "selector/filters.rs"]
mod filters;
#[path = "selector/idle.rs"]
mod idle;
#[path = "selector/oracle.rs"]
mod oracle;
#[path = "selector/spread.rs"]
mod spread;
#[path = "selector/stage.rs"]
mod stage;
