//! A virtqueue's driver: requests as chains, several in flight, completed in any order.

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
    /// Notifies the device.
    pub kick: Wake,
    /// Notified by the device.
    pub call: Wake,
    ram: Ram,
    has_indirect: bool,
    in_flight: HashMap<u16, InFlight>,
    completed: HashMap<u64, Completion>,
    next_token: u64,
}

/// Identifies a request until its completion is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u64);

/// The device's response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The used length, from the used ring.
    pub used_len: u32,
    /// The contents of all writable buffers, concatenated.
    pub writable: Vec<u8>,
}

struct InFlight {
    token: u64,
    /// Kept until the device is done with them.
    buffers: Vec<Buffer>,
    writable: Vec<(u64, usize)>,
    /// Indices of the chain's descriptors in the ring.
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

    /// Returns the guest's memory.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Returns the number of requests that are submitted and not completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Makes a request available, with one descriptor for each piece, without notifying the device.
    ///
    /// Returns `None` if the ring has too few free descriptors.
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

    /// Notifies the device if it asked for that.
    pub fn notify(&mut self) -> anyhow::Result<()> {
        if self.ring.needs_kick() {
            self.kick.wake().context("cannot notify the device")?;
        }
        Ok(())
    }

    /// Notifies the device and waits for the completion of `token`.
    pub fn wait(&mut self, token: Token) -> anyhow::Result<Completion> {
        self.notify()?;
        loop {
            if let Some(completion) = self.completed.remove(&token.0) {
                return Ok(completion);
            }
            self.reap_or_sleep()?;
        }
    }

    /// Notifies the device and waits until nothing is in flight. The completions can then be taken with
    /// [`Queue::wait`].
    pub fn wait_for_all(&mut self) -> anyhow::Result<()> {
        self.notify()?;
        while !self.in_flight.is_empty() {
            self.reap_or_sleep()?;
        }
        Ok(())
    }

    /// Collects the completions so far, without waiting.
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

    /// Notifies the device and waits for the next used element, even of a chain that this queue did not build.
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
