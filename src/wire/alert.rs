//! The one TLS record that pointsman sends of its own.

/// A fatal alert `unrecognized_name` as a whole record, in clear: no key exists yet.
///
/// Record type 21, version 3.3, two bytes (RFC 8446 section 5.1); level fatal 2, description 112
/// (RFC 8446 section 6; what it means: RFC 6066 section 3). Clients of every version read it.
pub const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_tls_parser_reads() {
        use tls_parser::{TlsAlertDescription, TlsAlertSeverity, TlsMessage};
        let (rest, record) = tls_parser::parse_tls_plaintext(&UNRECOGNIZED_NAME).unwrap();
        assert!(rest.is_empty());
        let [TlsMessage::Alert(alert)] = record.msg.as_slice() else {
            panic!("{record:?}");
        };
        assert_eq!(alert.severity, TlsAlertSeverity::Fatal);
        assert_eq!(alert.code, TlsAlertDescription::UnrecognizedName);
    }
}
