//! Datagrams of many sizes, each unlike the others, sent one by one or as the kernel takes them apart.

use std::io::IoSlice;

use pointsman::sys::datagram::send::{How, send};

use super::{PATIENCE, UdpClient};

/// The largest payload over IPv4.
pub const LARGEST: usize = 65_507;

/// Bytes that are on their way at a time: less than what any socket between has room for, with
/// what the kernel counts for each datagram.
const WINDOW: usize = 40_000;

/// A datagram of this size, none like another.
pub fn datagram(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + index * 13 + at / 251 + index / 256) as u8).collect()
}

/// One of each size.
pub fn datagrams(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(index, &length)| datagram(index, length)).collect()
}

/// Sends datagrams of equal size in a row as one to the kernel, which takes them apart; the last of
/// them may be shorter.
fn send_segments(client: &UdpClient, datagrams: &[Vec<u8>]) {
    let mut rest = datagrams;
    while let Some(first) = rest.first() {
        let size = first.len();
        let most = (LARGEST / size.max(1)).clamp(1, 64);
        let equal = rest.iter().take(most).take_while(|next| next.len() == size && size > 0);
        let mut count = equal.count().max(1);
        let shorter = |next: &Vec<u8>| (1..size).contains(&next.len());
        if size > 0 && count < most && rest.get(count).is_some_and(shorter) {
            count += 1;
        }
        let bytes = rest[..count].concat();
        let segment = (count > 1).then_some(size as u16);
        send(client.socket(), &[IoSlice::new(&bytes)], How { segment, ..How::default() }).unwrap();
        rest = &rest[count..];
    }
}

/// Everything comes back from a mirror as it was sent, in windows that fit into the buffers. Only a
/// loopback keeps the order whatever the machine has to do.
pub fn check_mirrored(client: &UdpClient, all: &[Vec<u8>], segments: bool, in_order: bool) {
    let mut rest = all;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(100).take_while(|next| {
            bytes += next.len() + 200;
            bytes <= WINDOW
        });
        let (window, later) = rest.split_at(fits.count().max(1));
        if segments {
            send_segments(client, window);
        } else {
            window.iter().for_each(|bytes| client.send(bytes));
        }
        let patience = |index| {
            let place = all.len() - rest.len() + index;
            client.try_receive(PATIENCE).unwrap_or_else(|| panic!("only {place} came back"))
        };
        let mut came: Vec<_> = (0..window.len()).map(patience).collect();
        if !in_order {
            let place = |got: &Vec<u8>| window.iter().position(|sent| sent == got);
            came.sort_by_key(place);
        }
        for (index, (sent, got)) in window.iter().zip(&came).enumerate() {
            let at = all.len() - rest.len() + index;
            assert!(got == sent, "number {at}: {} bytes became {}", sent.len(), got.len());
        }
        rest = later;
    }
}
