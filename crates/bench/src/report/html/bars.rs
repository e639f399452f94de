//! Ratios as bars that start at 1, with their intervals, and a bar of the verdicts.

use maud::{Markup, html as markup};

use super::times;
use crate::report::compare::{Ratio, Row, Tally, Verdict};

/// Returns the fill patterns that the plots use.
pub(super) fn patterns() -> Markup {
    markup! {
        svg class="defs" aria-hidden="true" {
            defs {
                pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect width="2.5" height="6" style="fill: var(--behind)" {}
                }
                pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse" {
                    circle cx="2" cy="2" r="1" style="fill: var(--dim)" {}
                }
            }
        }
    }
}

/// What a row compares.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Quantity {
    /// Operations per second, the first daemon's over the other's: more is better.
    Speed,
    /// Processor time of the daemon for an operation, the first daemon's over the other's: less is better.
    ProcessorTime,
}

impl Quantity {
    /// Returns the comparison of `row` with daemon `index + 1`, as it is drawn.
    fn of(self, row: &Row, index: usize) -> Option<Ratio> {
        match self {
            Self::Speed => row.speed[index],
            // Rows have it as the other's over the first daemon's.
            Self::ProcessorTime => row.cpu[index].map(|ratio| Ratio {
                median: 1.0 / ratio.median,
                interval: ratio.interval.map(|(low, high)| (1.0 / high, 1.0 / low)),
                ..ratio
            }),
        }
    }

    /// Returns the words for better and for worse.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Speed => ["faster", "slower"],
            Self::ProcessorTime => ["less", "more"],
        }
    }
}

/// Returns the legend of the fills.
pub(super) fn legend(quantity: Quantity) -> Markup {
    let entry = |class: &str, word: &str| {
        markup! {
            span {
                svg width="18" height="12" aria-hidden="true" {
                    rect class=(class) x="1" y="1" width="16" height="10" {}
                }
                (word)
            }
        }
    };
    let [better, worse] = quantity.words();
    markup! {
        div class="legend" {
            (entry("ahead", better)) (entry("plain", "same")) (entry("hollow", "unclear")) (entry("behind", worse))
        }
    }
}

/// Renders a tally as adjacent shares of a whole, and in words.
pub(super) fn tally(tally: &Tally) -> Markup {
    let parts = [("ahead", tally.faster), ("plain", tally.equal), ("hollow", tally.unclear), ("behind", tally.slower)];
    let total = parts.iter().map(|part| part.1).sum::<usize>().max(1) as f64;
    let share = |count: usize| count as f64 / total * 100.0;
    let before = |index: usize| parts[..index].iter().map(|part| share(part.1)).sum::<f64>();
    markup! {
        svg class="track" role="img" aria-label=(tally.to_string()) {
            @for (index, (class, count)) in parts.into_iter().enumerate() {
                @if count > 0 {
                    rect class=(class) x=(percent(before(index))) y="2" width=(percent(share(count))) height="15" {}
                }
            }
        }
        p { (tally.to_string()) }
    }
}

/// Renders a row for each workload: `quantity` of the first daemon relative to daemon `index + 1`.
///
/// Renders nothing if no row has it.
pub(super) fn ratios(rows: &[Row], index: usize, quantity: Quantity, heading: &str) -> Markup {
    let ratios: Vec<(&Row, Ratio)> = rows.iter().filter_map(|row| Some((row, quantity.of(row, index)?))).collect();
    if ratios.is_empty() {
        return Markup::default();
    }
    let shown = ratios.iter().flat_map(|(_, ratio)| match (ratio.interval, ratio.verdict) {
        (Some((low, high)), _) => [low, high],
        (None, _) => [1.0, 1.0],
    });
    let axis = Axis::over(shown);
    markup! {
        h3 { (heading) }
        @if quantity == Quantity::ProcessorTime { (legend(quantity)) }
        div role="list" {
            (axis.marks())
            @for (row, ratio) in ratios {
                div class="row" role="listitem" {
                    div class="name" { (row.workload) }
                    (axis.bar(&ratio))
                    (value(&ratio, quantity))
                }
            }
        }
    }
}

/// Renders a row for each workload: the speed relative to the bare directory. Has no intervals, because it only shows
/// the distance.
pub(super) fn host(rows: &[Row], ours: &str) -> Markup {
    let shares: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, row.host?))).collect();
    let axis = Axis::over(shares.iter().map(|share| share.1));
    markup! {
        @if !shares.is_empty() {
            details {
                summary { "Speed, " (ours) " over the host's own directory" }
                (axis.marks())
                @for (row, share) in shares {
                    div class="row" {
                        div class="name" { (row.workload) }
                        svg class="track" aria-hidden="true" {
                            (axis.grid())
                            (axis.rect(if share < 1.0 { "plain" } else { "ahead" }, share))
                        }
                        div class="value" { (times(share)) }
                    }
                }
            }
        }
    }
}

fn value(ratio: &Ratio, quantity: Quantity) -> Markup {
    let worse = quantity.words()[1];
    let brackets = ratio.interval.map(|(low, high)| format!("{low:.2} to {high:.2}"));
    markup! {
        div class="value" {
            @match ratio.verdict {
                Verdict::Better => span class="word-ahead" { (times(ratio.median)) },
                Verdict::Worse => span class="word-behind" { (times(ratio.median)) " " (worse) },
                Verdict::Equal => span class="word-dim" { "same" },
                Verdict::Unclear => span class="word-dim" { "unclear" },
            }
            " " span class="brackets" { (brackets.as_deref().unwrap_or("too few rounds")) }
        }
    }
}

/// A logarithmic axis between powers of two.
struct Axis {
    low_log2: f64,
    high_log2: f64,
}

impl Axis {
    /// Differences beyond this are not worth comparing by length.
    const LOG2_MAX: f64 = 6.0;

    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (mut low_log2, mut high_log2) = (-1.0, 1.0);
        for log2 in values.filter(|value| *value > 0.0).map(f64::log2) {
            low_log2 = log2.floor().max(-Self::LOG2_MAX).min(low_log2);
            high_log2 = log2.ceil().min(Self::LOG2_MAX).max(high_log2);
        }
        Self { low_log2, high_log2 }
    }

    /// Returns the position of a ratio, in percent of the width.
    fn at(&self, ratio: f64) -> f64 {
        let log2 = ratio.max(f64::MIN_POSITIVE).log2().clamp(self.low_log2, self.high_log2);
        (log2 - self.low_log2) / (self.high_log2 - self.low_log2) * 100.0
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        (self.low_log2 as i32..=self.high_log2 as i32).map(|log2| f64::from(log2).exp2())
    }

    fn marks(&self) -> Markup {
        // Leaves enough room for every mark on a narrow screen.
        let step = if self.high_log2 - self.low_log2 > 6.0 { 2 } else { 1 };
        let is_shown = |tick: f64| (tick.log2() as i32) % step == 0;
        let text = |tick: f64| if tick < 1.0 { format!("1/{:.0}", 1.0 / tick) } else { format!("{tick:.0}×") };
        markup! {
            div class="row axis" aria-hidden="true" {
                div class="name" {}
                div class="marks" {
                    @for tick in self.ticks().filter(|tick| is_shown(*tick)) {
                        @let at = self.at(tick);
                        // Keeps marks at the ends within the width.
                        span class=[(at <= 0.0).then_some("first").or((at >= 100.0).then_some("last"))]
                            style={ "left:" (percent(at)) } {
                            (text(tick))
                        }
                    }
                }
                div class="value" {}
            }
        }
    }

    fn grid(&self) -> Markup {
        markup! {
            @for tick in self.ticks() {
                @let x = percent(self.at(tick));
                line class=(if tick == 1.0 { "one" } else { "grid" }) x1=(x) x2=(x) y1="0" y2="100%" {}
            }
        }
    }

    fn rect(&self, class: &str, ratio: f64) -> Markup {
        let (one, at) = (self.at(1.0), self.at(ratio));
        markup! {
            rect class=(class) x=(percent(one.min(at))) width=(percent((one - at).abs())) y="4" height="11" {}
        }
    }

    fn bar(&self, ratio: &Ratio) -> Markup {
        markup! {
            svg class="track" aria-hidden="true" {
                (self.grid())
                @match ratio.verdict {
                    Verdict::Better => (self.rect("ahead", ratio.median)),
                    Verdict::Worse => (self.rect("behind", ratio.median)),
                    Verdict::Equal => circle class="same" cx=(percent(self.at(1.0))) cy="9.5" r="4" {},
                    Verdict::Unclear => {},
                }
                @if let Some((low, high)) = ratio.interval {
                    @let (low, high) = (self.at(low), self.at(high));
                    @if ratio.verdict == Verdict::Unclear {
                        rect class="hollow" x=(percent(low)) width=(percent(high - low)) y="4" height="11" {}
                    }
                    line class="under" x1=(percent(low)) x2=(percent(high)) y1="9.5" y2="9.5" {}
                    line class="whisker" x1=(percent(low)) x2=(percent(high)) y1="9.5" y2="9.5" {}
                    @for end in [low, high] {
                        line class="whisker" x1=(percent(end)) x2=(percent(end)) y1="6" y2="13" {}
                    }
                }
            }
        }
    }
}

fn percent(value: f64) -> String {
    format!("{value:.2}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_logarithmic_and_has_room_on_both_sides() {
        let axis = Axis::over([1.5, 3.9].into_iter());
        assert_eq!((axis.low_log2, axis.high_log2), (-1.0, 2.0));
        assert_eq!((axis.at(0.5), axis.at(4.0)), (0.0, 100.0));
        assert_eq!(axis.at(1000.0), 100.0);
        assert_eq!(Axis::over(std::iter::empty()).ticks().count(), 3);
    }
}
