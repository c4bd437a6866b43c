#!/bin/sh
# Copies the XML samples into the corpora, from which the fuzzer starts. Run it after a change of a sample;
# a test compares them.
set -eu
cd "$(dirname "$0")/corpus"
mkdir -p xml_request wwi_request xml_tree soap_request
rm -f xml_request/sample-* wwi_request/sample-* xml_tree/sample-* soap_request/sample-*
for sample in ../../../schemas/samples/soap*/*/*.xml; do
    cp "$sample" "soap_request/sample-$(echo "${sample#../../../schemas/samples/}" | tr / -)"
done
for sample in ../../../schemas/samples/xml/*/*/*.xml ../../../schemas/samples/wwi/*/*/*.xml; do
    name=sample-$(echo "${sample#../../../schemas/samples/}" | tr / -)
    case $sample in
        */xml/TransactionRequest/* | */xml/OpenAccountRequest/* | */xml/ChangeAccountRequest/*) cp "$sample" "xml_request/$name" ;;
        */wwi/BookingOrder/* | */wwi/CustomerAccountOrder/* | */wwi/CustomerAccountAmendment/*) cp "$sample" "wwi_request/$name" ;;
    esac
    case $sample in */valid/*) cp "$sample" "xml_tree/$name" ;; esac
done
