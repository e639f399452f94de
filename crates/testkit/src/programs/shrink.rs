//! Makes a program that shows a difference shorter, as long as it shows the same one.

use proptest::strategy::ValueTree;

/// Attempts: a program of 40 steps is short after some hundred.
const ATTEMPTS_MAX: usize = 1500;

/// Returns the smallest value found for which `shows` says that it is as good as the current one.
pub(super) fn shrink<T>(
    tree: &mut impl ValueTree<Value = T>,
    mut shows: impl FnMut(&T) -> anyhow::Result<bool>,
) -> anyhow::Result<T> {
    let mut best = tree.current();
    let mut is_another = tree.simplify();
    for _ in 0..ATTEMPTS_MAX {
        if !is_another {
            break;
        }
        let value = tree.current();
        is_another = if shows(&value)? {
            best = value;
            tree.simplify()
        } else {
            tree.complicate()
        };
    }
    Ok(best)
}
