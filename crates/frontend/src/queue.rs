//! One virtqueue at work: requests as chains, many in flight, completions in any order.

use std::collections::HashMap;

use anyhow::{Context as _, bail, ensure};

use super::{
    message::HANG_AFTER,
    ram::{Buffer, Ram},
    ring::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, Ring, WRITE},
    wake::Wake,
};

/// The driver's side of one queue.
pub struct Queue {
    /// The ring, for tests that break it.
    pub ring: Ring,
    /// Wakes the device.
    pub kick: Wake,
    /// Is woken by the device.
    pub call: Wake,
    ram: Ram,
    has_indirect: bool,
    in_flight: HashMap<u16, InFlight>,
    completed: HashMap<u64, Completion>,
    next_token: u64,
}

/// Names a request until its completion is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u64);

/// What the device made of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// As the used ring says.
    pub used_len: u32,
    /// All of the writable buffers, one behind the other.
    pub writable: Vec<u8>,
}

struct InFlight {
    token: u64,
    /// Held until the device is done with them.
    buffers: Vec<Buffer>,
    writable: Vec<(u64, usize)>,
    /// The ring's own descriptors.
    descriptors: Vec<u16>,
}

impl Queue {
    pub(super) fn new(ram: &Ram, ring: Ring, kick: Wake, call: Wake, has_indirect: bool) -> Self {
        Self {
            ring,
            kick,
            call,
            ram: ram.clone(),
            has_indirect,
            in_flight: HashMap::new(),
            completed: HashMap::new(),
            next_token: 0,
        }
    }

    /// The guest's memory.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Requests submitted and not completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Makes a request available, one descriptor for each piece, and does not wake the device.
    ///
    /// `None` where the ring has too few free descriptors.
    pub fn submit(&mut self, readable: &[&[u8]], writable: &[usize]) -> Option<Token> {
        let count = readable.len() + writable.len();
        let needed = if self.has_indirect { 1 } else { count };
        if count == 0 || self.ring.free_count() < needed {
            return None;
        }
        let mut buffers = Vec::with_capacity(count + 1);
        let mut descriptors = Vec::with_capacity(count);
        for piece in readable {
            let buffer = self.ram.alloc(piece.len() as u64, 1);
            self.ram.write(buffer.addr(), piece);
            descriptors.push(Descriptor { addr: buffer.addr(), len: piece.len() as u32, flags: 0, next: 0 });
            buffers.push(buffer);
        }
        for &len in writable {
            let buffer = self.ram.alloc(len as u64, 1);
            descriptors.push(Descriptor { addr: buffer.addr(), len: len as u32, flags: WRITE, next: 0 });
            buffers.push(buffer);
        }
        let written = descriptors.iter().filter(|descriptor| descriptor.flags == WRITE);
        let writable = written.map(|descriptor| (descriptor.addr, descriptor.len as usize)).collect();
        let own = if self.has_indirect {
            let table = self.indirect_table(descriptors);
            let index = self.ring.take()?;
            let len = table.len() as u32;
            self.ring.set_descriptor(index, Descriptor { addr: table.addr(), len, flags: INDIRECT, next: 0 });
            buffers.push(table);
            vec![index]
        } else {
            self.direct(descriptors)
        };
        let token = self.next_token;
        self.next_token += 1;
        self.in_flight.insert(own[0], InFlight { token, buffers, writable, descriptors: own.clone() });
        self.ring.publish(own[0]);
        Some(Token(token))
    }

    /// Wakes the device where it wants to be woken.
    pub fn notify(&mut self) -> anyhow::Result<()> {
        if self.ring.needs_kick() {
            self.kick.wake().context("cannot wake the device")?;
        }
        Ok(())
    }

    /// Wakes the device and waits for the completion of `token`.
    pub fn wait(&mut self, token: Token) -> anyhow::Result<Completion> {
        self.notify()?;
        loop {
            if let Some(completion) = self.completed.remove(&token.0) {
                return Ok(completion);
            }
            self.reap_or_sleep()?;
        }
    }

    /// Wakes the device and waits until nothing is in flight; the completions wait to be taken with [`Queue::wait`].
    pub fn wait_for_all(&mut self) -> anyhow::Result<()> {
        self.notify()?;
        while !self.in_flight.is_empty() {
            self.reap_or_sleep()?;
        }
        Ok(())
    }

    /// Takes what the device has completed, without waiting.
    pub fn reap(&mut self) -> anyhow::Result<usize> {
        let mut count = 0;
        while let Some((head, used_len)) = self.ring.pop_used() {
            let known = u16::try_from(head).ok().and_then(|head| self.in_flight.remove(&head));
            let Some(done) = known else { bail!("the device completed chain {head}, which is not in flight") };
            let room: usize = done.writable.iter().map(|&(_, len)| len).sum();
            ensure!(used_len as usize <= room, "the device says it wrote {used_len} bytes to {room}");
            let writable = done.writable.iter().flat_map(|&(addr, len)| self.ram.read(addr, len)).collect();
            self.completed.insert(done.token, Completion { used_len, writable });
            self.ring.give_back(&done.descriptors);
            drop(done.buffers);
            count += 1;
        }
        Ok(count)
    }

    /// Wakes the device and waits for the next used element, whoever made its chain.
    pub fn wait_for_used(&mut self) -> anyhow::Result<(u32, u32)> {
        self.kick.wake()?;
        loop {
            if let Some(used) = self.ring.pop_used() {
                return Ok(used);
            }
            self.sleep()?;
        }
    }

    fn reap_or_sleep(&mut self) -> anyhow::Result<()> {
        if self.reap()? == 0 { self.sleep() } else { Ok(()) }
    }

    fn sleep(&mut self) -> anyhow::Result<()> {
        if self.ring.enable_call() || self.call.wait(HANG_AFTER)? {
            return Ok(());
        }
        bail!("nothing completed for {} s", HANG_AFTER.as_secs())
    }

    fn indirect_table(&self, mut descriptors: Vec<Descriptor>) -> Buffer {
        let last = descriptors.len() - 1;
        for (index, descriptor) in descriptors.iter_mut().enumerate().take(last) {
            descriptor.flags |= NEXT;
            descriptor.next = index as u16 + 1;
        }
        let table = self.ram.alloc((descriptors.len() * DESCRIPTOR_LEN) as u64, 16);
        let bytes: Vec<u8> = descriptors.into_iter().flat_map(Descriptor::to_bytes).collect();
        self.ram.write(table.addr(), &bytes);
        table
    }

    fn direct(&mut self, descriptors: Vec<Descriptor>) -> Vec<u16> {
        let own: Vec<u16> = descriptors.iter().filter_map(|_| self.ring.take()).collect();
        for (position, mut descriptor) in descriptors.into_iter().enumerate() {
            if let Some(&next) = own.get(position + 1) {
                descriptor.flags |= NEXT;
                descriptor.next = next;
            }
            self.ring.set_descriptor(own[position], descriptor);
        }
        own
    }
}
