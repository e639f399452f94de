//! The context of a workload: the place, the parameters, timing, and reporting.

use std::{
    io,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Params, laps::Laps, line::Line, place::Storage};

/// The stage of one run.
pub(super) struct Stage<'a> {
    place: &'a dyn Storage,
    pub(super) params: Params,
    is_stopped: &'a AtomicBool,
    say: &'a mut dyn FnMut(Line) -> io::Result<()>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        place: &'a dyn Storage,
        params: Params,
        is_stopped: &'a AtomicBool,
        say: &'a mut dyn FnMut(Line) -> io::Result<()>,
    ) -> Self {
        Self { place, params, is_stopped, say }
    }

    /// Returns the place.
    pub(super) fn place(&self) -> &'a dyn Storage {
        self.place
    }

    /// Returns a path in the run's own directory.
    pub(super) fn path(&self, name: &str) -> String {
        match self.params.dir.as_str() {
            "" => name.to_owned(),
            dir => format!("{dir}/{name}"),
        }
    }

    /// Returns a random number generator, the same in every run. `stream` distinguishes the workloads.
    pub(super) fn random(&self, stream: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.params.seed.wrapping_add(stream))
    }

    /// Times `body`, which calls [`Laps::lap`] after each operation.
    ///
    /// A failure becomes a line: if a file system refuses one workload, the others can still run.
    pub(super) fn measure(
        &mut self,
        name: &str,
        body: impl FnOnce(&dyn Storage, &mut Laps) -> io::Result<()>,
    ) -> io::Result<()> {
        let place = self.place;
        self.timed(name, || {
            let mut laps = Laps::begin();
            body(place, &mut laps)?;
            laps.stop();
            Ok(laps)
        })
    }

    /// Like `measure`, with caches dropped before; refused if they cannot be.
    pub(super) fn measure_cold(
        &mut self,
        name: &str,
        body: impl FnOnce(&dyn Storage, &mut Laps) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.place.forget() {
            Ok(()) => self.measure(name, body),
            Err(error) => self.measure(name, |_, _| Err(error)),
        }
    }

    /// Times `jobs` threads at once, with caches dropped before. Each gets the result of `prepare`, which is not timed.
    pub(super) fn measure_jobs<T>(
        &mut self,
        name: &str,
        jobs: u16,
        prepare: impl Fn(&dyn Storage, u16) -> io::Result<T> + Sync,
        body: impl Fn(&dyn Storage, &mut T, &mut Laps) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        let place = self.place;
        let barrier = Barrier::new(usize::from(jobs));
        let job = |number| {
            let place = place.for_job(number);
            let prepared = prepare(place.as_ref(), number);
            // Every thread reaches the barrier, even after an error: the others would wait forever.
            barrier.wait();
            let mut prepared = prepared?;
            let mut laps = Laps::begin();
            body(place.as_ref(), &mut prepared, &mut laps)?;
            laps.stop();
            Ok(laps)
        };
        let forgotten = place.forget();
        self.timed(name, || {
            forgotten?;
            thread::scope(|scope| {
                let job = &job;
                let threads: Vec<_> = (0..jobs).map(|number| scope.spawn(move || job(number))).collect();
                let mut all: io::Result<Option<Laps>> = Ok(None);
                for thread in threads {
                    let laps = thread.join().map_err(|_| io::Error::other("a job panicked"))?;
                    all = match (all, laps) {
                        (Ok(Some(mut all)), Ok(laps)) => {
                            all.add(&laps);
                            Ok(Some(all))
                        }
                        (Ok(None), laps) => laps.map(Some),
                        (Err(error), _) | (_, Err(error)) => Err(error),
                    };
                }
                all?.ok_or_else(|| io::Error::other("no jobs"))
            })
        })
    }

    fn timed(&mut self, name: &str, body: impl FnOnce() -> io::Result<Laps>) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        (self.say)(Line::Begin { workload: name.to_owned() })?;
        thread::sleep(Duration::from_millis(self.params.settle_ms));
        (self.say)(match body() {
            Ok(laps) => Line::Result(laps.timing(name)),
            Err(error) => Line::Refused { workload: name.to_owned(), reason: error.to_string() },
        })
    }

    pub(super) fn end(self) -> io::Result<()> {
        (self.say)(Line::End)
    }
}
