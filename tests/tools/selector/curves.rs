//! SEL-2: what holds for every curve and every parameter that is allowed. The table by hand stands beside the curves.

use maitred::select::{Curve, MetricSource, Rule};
use proptest::prelude::*;

fn curve() -> impl Strategy<Value = Curve> {
    prop::sample::select(Curve::ALL.to_vec()).prop_flat_map(|curve| match curve.parameter() {
        None => Just(curve).boxed(),
        Some((_, _, (low, high))) => {
            let ends = prop::sample::select(vec![low, high]);
            prop_oneof![9 => low..=high, 1 => ends].prop_map(move |value| curve.with_parameter(value)).boxed()
        }
    })
}

/// Any number, also those that are none and those that no metric has.
fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..=1.0_f64, 2 => -1e3..1e3_f64, 1 => any::<f64>(), 1 => Just(f64::NAN)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sel_2_a_curve_is_in_0_to_1_never_no_number_and_keeps_its_ends(curve in curve(), x in anything()) {
        let y = curve.at(x);
        prop_assert!((0.0..=1.0).contains(&y), "{curve} at {x} is {y}");
        prop_assert!((curve.at(1.0) - 1.0).abs() < 1e-9, "{curve}");
        let starts_at_0 = !matches!(curve, Curve::Step { threshold } if threshold <= 0.0);
        prop_assert!(!starts_at_0 || curve.at(0.0).abs() < 1e-9, "{curve}");
    }

    #[test]
    fn sel_2_a_curve_never_goes_down(curve in curve(), one in 0.0..=1.0_f64, other in 0.0..=1.0_f64) {
        let (low, high) = if one < other { (one, other) } else { (other, one) };
        // What the last bits of e^x do is no slope.
        prop_assert!(curve.at(low) <= curve.at(high) + 1e-12, "{curve} from {low} to {high}");
    }

    #[test]
    fn sel_2_a_normalised_value_is_clamped(
        value in prop::option::of(anything()),
        min in -1e15..1e15_f64,
        span in 1e-3..1e15_f64,
        invert in any::<bool>(),
    ) {
        let rule = Rule { min, max: min + span, invert, ..Rule::new(MetricSource::Mspt) };
        let x = rule.normalise(value);
        prop_assert!((0.0..=1.0).contains(&x), "{rule:?} of {value:?} is {x}");
        prop_assert!(value.is_some_and(|value| !value.is_nan()) || (x - 1.0).abs() < f64::EPSILON, "missing is worst");
    }
}
