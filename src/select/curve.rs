use std::fmt;

/// Allowed `k` of [`Curve::Exponential`], [`Curve::Logarithmic`] and [`Curve::Sigmoid`].
pub const K_BOUNDS: (f64, f64) = (0.1, 20.0);
/// Allowed `p` of [`Curve::Power`].
pub const P_BOUNDS: (f64, f64) = (0.1, 8.0);
/// Allowed `threshold` of [`Curve::Step`].
pub const THRESHOLD_BOUNDS: (f64, f64) = (0.0, 1.0);

/// How a normalised metric, 0 best to 1 worst, becomes a cost from 0 to 1. Every curve goes up and never down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Curve {
    /// `x`
    Linear,
    /// `(e^(kx) − 1) / (e^k − 1)`: flat, then steep.
    Exponential {
        /// How steep: 0.1 to 20.
        k: f64,
    },
    /// `ln(1 + kx) / ln(1 + k)`: steep, then flat.
    Logarithmic {
        /// How steep: 0.1 to 20.
        k: f64,
    },
    /// `1 / (1 + e^(−k(x − ½)))`, stretched so that 0 stays 0 and 1 stays 1: steep in the middle.
    Sigmoid {
        /// How steep: 0.1 to 20.
        k: f64,
    },
    /// 0 below the threshold, 1 from it on.
    Step {
        /// Where: 0 to 1.
        threshold: f64,
    },
    /// `x^p`
    Power {
        /// How bent: 0.1 to 8; 1 is a straight line.
        p: f64,
    },
}

impl Curve {
    /// Every curve with its default parameter.
    pub const ALL: [Self; 6] = [
        Self::Linear,
        Self::Exponential { k: 3.0 },
        Self::Logarithmic { k: 9.0 },
        Self::Sigmoid { k: 8.0 },
        Self::Step { threshold: 0.5 },
        Self::Power { p: 2.0 },
    ];

    /// The curve's name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Exponential { .. } => "exponential",
            Self::Logarithmic { .. } => "logarithmic",
            Self::Sigmoid { .. } => "sigmoid",
            Self::Step { .. } => "step",
            Self::Power { .. } => "power",
        }
    }

    /// The curve of this name with its default parameter.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|curve| curve.name() == name)
    }

    /// The parameter: its name in the config, its value, and its bounds.
    pub fn parameter(self) -> Option<(&'static str, f64, (f64, f64))> {
        match self {
            Self::Linear => None,
            Self::Exponential { k } | Self::Logarithmic { k } | Self::Sigmoid { k } => Some(("k", k, K_BOUNDS)),
            Self::Step { threshold } => Some(("threshold", threshold, THRESHOLD_BOUNDS)),
            Self::Power { p } => Some(("p", p, P_BOUNDS)),
        }
    }

    /// The same curve with another parameter; a straight line has none.
    #[must_use]
    pub fn with_parameter(self, value: f64) -> Self {
        match self {
            Self::Linear => Self::Linear,
            Self::Exponential { .. } => Self::Exponential { k: value },
            Self::Logarithmic { .. } => Self::Logarithmic { k: value },
            Self::Sigmoid { .. } => Self::Sigmoid { k: value },
            Self::Step { .. } => Self::Step { threshold: value },
            Self::Power { .. } => Self::Power { p: value },
        }
    }

    /// The cost at `x`, in [0, 1] for any `x`; one that is no number counts as 1.
    pub fn at(self, x: f64) -> f64 {
        Bend::new(self).at(x)
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parameter() {
            None => f.write_str(self.name()),
            Some((name, value, _)) => write!(f, "{}, {name} {value}", self.name()),
        }
    }
}

/// A curve with what does not depend on `x` worked out, so that a thousand backends cost one of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bend {
    Linear,
    Exponential { k: f64, whole: f64 },
    Logarithmic { k: f64, whole: f64 },
    Sigmoid { k: f64, low: f64, whole: f64 },
    Step { threshold: f64 },
    Power { p: f64 },
}

fn logistic(k: f64, x: f64) -> f64 {
    1.0 / (1.0 + (-k * (x - 0.5)).exp())
}

impl Bend {
    pub(super) fn new(curve: Curve) -> Self {
        match curve {
            Curve::Linear => Self::Linear,
            Curve::Exponential { k } => Self::Exponential { k, whole: k.exp_m1() },
            Curve::Logarithmic { k } => Self::Logarithmic { k, whole: k.ln_1p() },
            Curve::Sigmoid { k } => {
                let (low, high) = (logistic(k, 0.0), logistic(k, 1.0));
                Self::Sigmoid { k, low, whole: high - low }
            }
            Curve::Step { threshold } => Self::Step { threshold },
            Curve::Power { p } => Self::Power { p },
        }
    }

    pub(super) fn at(self, x: f64) -> f64 {
        // `max` and `min` take the number where the other side is none.
        let x = if x.is_nan() { 1.0 } else { x.clamp(0.0, 1.0) };
        let y = match self {
            Self::Linear => x,
            Self::Exponential { k, whole } => (k * x).exp_m1() / whole,
            Self::Logarithmic { k, whole } => (k * x).ln_1p() / whole,
            Self::Sigmoid { k, low, whole } => (logistic(k, x) - low) / whole,
            Self::Step { threshold } => f64::from(u8::from(x >= threshold)),
            Self::Power { p } => x.powf(p),
        };
        // A parameter out of its bounds, which only code can set, must not turn the order of backends upside down.
        if y.is_nan() { 1.0 } else { y.clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0, ¼, ½, ¾, 1 worked out by hand from the formulas.
    #[test]
    fn sel_2_every_curve_at_the_quarters() {
        let table: [(Curve, [f64; 5]); 10] = [
            (Curve::Linear, [0.0, 0.25, 0.5, 0.75, 1.0]),
            // e^0.75 = 2.117000, e^1.5 = 4.481689, e^2.25 = 9.487736, e^3 = 20.085537
            (Curve::Exponential { k: 3.0 }, [0.0, 0.058_526, 0.182_426, 0.444_721, 1.0]),
            // e^0.25 = 1.284025, e^0.5 = 1.648721, e^0.75 = 2.117000, e = 2.718282
            (Curve::Exponential { k: 1.0 }, [0.0, 0.165_296, 0.377_541, 0.650_068, 1.0]),
            // lg 3.25, lg 5.5, lg 7.75
            (Curve::Logarithmic { k: 9.0 }, [0.0, 0.511_883, 0.740_363, 0.889_302, 1.0]),
            // log2 1.25, log2 1.5, log2 1.75
            (Curve::Logarithmic { k: 1.0 }, [0.0, 0.321_928, 0.584_963, 0.807_355, 1.0]),
            // s(0) = 1/(1+e^4) = 0.017986, s(¼) = 1/(1+e^2) = 0.119203, s(1) − s(0) = 0.964028
            (Curve::Sigmoid { k: 8.0 }, [0.0, 0.104_994, 0.5, 0.895_006, 1.0]),
            // s(0) = 1/(1+e^5) = 0.006693, s(¼) = 1/(1+e^2.5) = 0.075858, s(1) − s(0) = 0.986614
            (Curve::Sigmoid { k: 10.0 }, [0.0, 0.070_104, 0.5, 0.929_896, 1.0]),
            (Curve::Step { threshold: 0.5 }, [0.0, 0.0, 1.0, 1.0, 1.0]),
            (Curve::Power { p: 2.0 }, [0.0, 0.0625, 0.25, 0.5625, 1.0]),
            (Curve::Power { p: 0.5 }, [0.0, 0.5, std::f64::consts::FRAC_1_SQRT_2, 0.866_025, 1.0]),
        ];
        for (curve, wanted) in table {
            for (x, want) in [0.0, 0.25, 0.5, 0.75, 1.0].into_iter().zip(wanted) {
                let got = curve.at(x);
                assert!((got - want).abs() < 1e-6, "{curve} at {x}: {got}, by hand {want}");
            }
        }
    }

    #[test]
    fn sel_2_the_ends_are_exact_and_what_is_no_number_counts_as_worst() {
        for curve in Curve::ALL {
            for (x, want) in [(0.0, 0.0), (-7.0, 0.0), (f64::NEG_INFINITY, 0.0), (1.0, 1.0), (9.0, 1.0)] {
                assert!((curve.at(x) - want).abs() < f64::EPSILON, "{curve} at {x}");
            }
            assert!((curve.at(f64::NAN) - 1.0).abs() < f64::EPSILON, "{curve}");
            assert_eq!(Curve::named(curve.name()), Some(curve));
        }
        let broken = [Curve::Exponential { k: f64::NAN }, Curve::Sigmoid { k: 0.0 }, Curve::Power { p: f64::INFINITY }];
        for curve in broken {
            assert!((0.0..=1.0).contains(&curve.at(0.3)), "{curve:?}");
        }
    }
}
