"""What the tests lean on, where a mistake would make them fail for no fault of Sluice's."""
# ctest-once

import os
import socket
import threading

import redis

from case import SluiceCase
from redis_server import connect


class Support(SluiceCase):
    def test_a_reset_on_a_unix_socket_is_a_connection_error(self):
        """A server that dies with a command unread resets the connection; the next command finds the reset in the pool."""
        path = os.path.join(self.directory, "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            def answer_once():
                peer, _ = listener.accept()
                peer.recv(1000)
                peer.sendall(b"+PONG\r\n")
                peer.recv(1)
                peer.close()
                listener.close()

            server = threading.Thread(target=answer_once)
            server.start()
            client = connect(path)
            self.assertTrue(client.ping())
            [connection] = client.connection_pool._available_connections
            connection._sock.sendall(b"unread")
            server.join()
        with self.assertRaises(redis.ConnectionError):
            client.ping()
