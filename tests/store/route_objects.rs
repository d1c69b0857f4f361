//! Objects in memory: taken, saved, given up, and reached by messages from wherever they are sent.

mod faults;
mod hangs;
mod keeping;
mod leaving;
mod moving;
mod restart;
mod rules;
mod table;
