// Package netfault breaks the network path of a client on purpose. A [Link] cuts,
// holds, delays and drops what passes; a [TCPProxy] is a Link in front of any TCP
// server.
package netfault
