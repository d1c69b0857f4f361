//! The choice of a backend (SEL-1 to SEL-6) as what it is: a function of one moment. When one of these fails, players
//! crowd one backend, are sent to one that cannot take them, or two runs of the same fleet cannot be compared.

mod curves;
mod filters;
mod idle;
mod oracle;
mod spread;
mod stage;
