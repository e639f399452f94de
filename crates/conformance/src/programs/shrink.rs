//! Makes a program that shows a difference shorter, as long as it shows the same one.

use proptest::strategy::ValueTree;

/// Attempts: a program of 40 steps is short after some hundred.
const ATTEMPTS_MAX: usize = 1500;

/// Returns the smallest program found for which `shows` says that it is as good as the current one.
pub(super) fn shrink<T: Clone>(
    tree: &mut impl ValueTree<Value = Vec<T>>,
    mut shows: impl FnMut(&[T]) -> anyhow::Result<bool>,
) -> anyhow::Result<Vec<T>> {
    let mut best = tree.current();
    let mut is_another = tree.simplify();
    for _ in 0..ATTEMPTS_MAX {
        if !is_another {
            break;
        }
        let program = tree.current();
        is_another = if shows(&program)? {
            best = program;
            tree.simplify()
        } else {
            tree.complicate()
        };
    }
    without_idle_steps(best, shows)
}

/// Leaves out every step that the others do without: some do only since those have become simpler.
fn without_idle_steps<T: Clone>(
    mut program: Vec<T>,
    mut shows: impl FnMut(&[T]) -> anyhow::Result<bool>,
) -> anyhow::Result<Vec<T>> {
    let mut len_before = usize::MAX;
    while program.len() < len_before {
        len_before = program.len();
        for index in (0..program.len()).rev() {
            let mut shorter = program.clone();
            shorter.remove(index);
            if shows(&shorter)? {
                program = shorter;
            }
        }
    }
    Ok(program)
}
