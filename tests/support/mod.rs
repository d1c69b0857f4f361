//! The testkit under the name that the tests of this package know it by.
pub use maitred_testkit::*;
