//! Values with keys that are never reused.
//!
//! A key consists of a slot's number and the slot's generation, which is incremented by each removal: finding a value
//! needs no search, and an old key finds nothing. Slots are allocated in chunks, so growth neither copies nor doubles
//! the memory. A [`Slab`] has no lock; [`Inodes`](super::inodes::Inodes) and [`Handles`](super::handles::Handles) keep
//! one in each of their shards.

/// Slots in a chunk: small enough for a share of a few files, large enough to keep the list of chunks short.
const CHUNK_LEN: usize = 128;

/// Values of type `T`; the keys of shard `shard` out of `shards` are disjoint from those of all others.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: Vec<u32>,
    len: usize,
    shard: u32,
    shards: u32,
    /// Generation of a new slot.
    first_generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Returns the shard out of `shards` that issued `key`.
pub(super) fn shard_of(key: u64, shards: u32) -> usize {
    (key as u32 % shards) as usize
}

impl<T> Slab<T> {
    pub(super) fn new(shard: u32, shards: u32) -> Self {
        // Generation 0 is skipped, so that no key is a small number.
        Self { chunks: Vec::new(), free: Vec::new(), len: 0, shard, shards, first_generation: 1 }
    }

    /// Returns the number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Stores `value` and returns its key, which is at least 2^32, or returns the value if all slots are used up.
    pub(super) fn insert(&mut self, value: T) -> Result<u64, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => match self.add_slot() {
                Some(index) => index,
                None => return Err(value),
            },
        };
        let slot = self.slot_mut(index).expect("a free index names a slot");
        slot.value = Some(value);
        let generation = slot.generation;
        self.len += 1;
        Ok(self.key(index, generation))
    }

    /// Returns a generation that no key has had yet, or `None` if they are used up.
    pub(super) fn unused_generation(&self) -> Option<u32> {
        let used = self.chunks.iter().flatten().map(|slot| slot.generation).max();
        used.map_or(Some(self.first_generation), |used| used.checked_add(1))
    }

    /// Lets all keys from now on have at least this generation. The slab must be empty.
    pub(super) fn begin_at(&mut self, generation: u32) {
        debug_assert_eq!(self.len, 0, "a value would lose its key");
        self.first_generation = self.first_generation.max(generation);
        let first = self.first_generation;
        self.chunks.iter_mut().flatten().for_each(|slot| slot.generation = slot.generation.max(first));
    }

    /// Returns all values with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let slots = (0..).zip(self.chunks.iter().flatten());
        slots.filter_map(|(index, slot)| Some((self.key(index, slot.generation), slot.value.as_ref()?)))
    }

    /// Returns all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().filter_map(|slot| slot.value.as_ref())
    }

    pub(super) fn get(&self, key: u64) -> Option<&T> {
        let index = self.index(key) as usize;
        let slot = self.chunks.get(index / CHUNK_LEN)?.get(index % CHUNK_LEN)?;
        if slot.generation == generation(key) { slot.value.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let index = self.index(key);
        let slot = self.slot_mut(index)?;
        if slot.generation == generation(key) { slot.value.as_mut() } else { None }
    }

    /// Removes and returns the value; its key finds nothing from then on.
    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let index = self.index(key);
        let slot = self.slot_mut(index)?;
        if slot.generation != generation(key) {
            return None;
        }
        let value = slot.value.take()?;
        // A slot that has used up its generations is never reused.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(index);
        }
        self.len -= 1;
        Some(value)
    }

    /// Removes all values; their keys find nothing from then on.
    pub(super) fn drain(&mut self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.len);
        for index in 0..self.slot_count() {
            let Some(slot) = self.slot_mut(index) else { break };
            if let (Some(_), generation) = (&slot.value, slot.generation) {
                values.extend(self.remove(self.key(index, generation)));
            }
        }
        values
    }

    /// Returns the full key of the slot with this index, which [`Slab::index`] returned for a key whose value is still
    /// there.
    pub(super) fn key_at(&self, index: u32) -> Option<u64> {
        let slot = self.chunks.get(index as usize / CHUNK_LEN)?.get(index as usize % CHUNK_LEN)?;
        slot.value.as_ref().map(|_| self.key(index, slot.generation))
    }

    /// Returns the value in the slot with this index.
    pub(super) fn value_at(&self, index: u32) -> Option<&T> {
        self.chunks.get(index as usize / CHUNK_LEN)?.get(index as usize % CHUNK_LEN)?.value.as_ref()
    }

    /// Returns the value in the slot with this index.
    pub(super) fn value_at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    /// Returns the slot of `key`, a short identifier for a value that is there.
    pub(super) fn index(&self, key: u64) -> u32 {
        key as u32 / self.shards
    }

    fn slot_count(&self) -> u32 {
        self.chunks.iter().map(Vec::len).sum::<usize>() as u32
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK_LEN)?.get_mut(index as usize % CHUNK_LEN)
    }

    fn add_slot(&mut self) -> Option<u32> {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_LEN) {
            self.chunks.push(Vec::with_capacity(CHUNK_LEN));
        }
        let before = (self.chunks.len() - 1) * CHUNK_LEN;
        let chunk = self.chunks.last_mut()?;
        let index = u32::try_from(before + chunk.len()).ok()?;
        // The slot's number, over all shards, has 32 bits.
        index.checked_mul(self.shards)?.checked_add(self.shard)?;
        chunk.push(Slot { generation: self.first_generation, value: None });
        Some(index)
    }

    fn key(&self, index: u32, generation: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(index * self.shards + self.shard)
    }
}

fn generation(key: u64) -> u32 {
    (key >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_worn_slot_is_retired() {
        let mut slab = Slab::new(0, 1);
        let key = slab.insert('a').unwrap();
        slab.slot_mut(0).unwrap().generation = u32::MAX;
        let last = u64::from(u32::MAX) << 32;
        assert_eq!(slab.get(key), None);
        assert_eq!(slab.remove(last), Some('a'));
        assert_eq!(slab.insert('b'), Ok(1 << 32 | 1));
    }

    proptest! {
        /// The oracle is a map that never forgets which keys were issued.
        #[test]
        fn keys_find_their_values_and_are_given_once(
            steps in proptest::collection::vec((any::<bool>(), any::<u16>()), 1..600),
        ) {
            let mut slab = Slab::new(3, 8);
            let mut model: HashMap<u64, Option<u16>> = HashMap::new();
            for (is_insert, number) in steps {
                let live: Vec<u64> = model.iter().filter(|(_, value)| value.is_some()).map(|(&key, _)| key).collect();
                if is_insert || live.is_empty() {
                    let key = slab.insert(number).unwrap();
                    prop_assert_eq!(shard_of(key, 8), 3);
                    prop_assert_eq!(slab.key_at(slab.index(key)), Some(key));
                    prop_assert!(model.insert(key, Some(number)).is_none(), "key {} was issued before", key);
                } else {
                    let key = live[usize::from(number) % live.len()];
                    prop_assert_eq!(slab.remove(key), model.insert(key, None).unwrap());
                }
                prop_assert_eq!(slab.len(), model.values().flatten().count());
            }
            for (&key, &value) in &model {
                prop_assert_eq!(slab.get(key).copied(), value);
                prop_assert_eq!(slab.get_mut(key).copied(), value);
            }
            let mut left: Vec<u16> = model.values().copied().flatten().collect();
            let mut drained = slab.drain();
            left.sort_unstable();
            drained.sort_unstable();
            prop_assert_eq!(drained, left);
            prop_assert!(model.keys().all(|&key| slab.get(key).is_none()));
        }
    }
}
