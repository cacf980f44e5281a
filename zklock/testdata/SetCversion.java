import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

// SetCversion DATADIR PATH CVERSION sets the counter of a node's children in the data of a server that does not run.
public class SetCversion {
  public static void main(String[] args) throws Exception {
    File dir = new File(args[0]);
    FileTxnSnapLog files = new FileTxnSnapLog(dir, dir);
    DataTree tree = new DataTree();
    ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
    long last = files.restore(tree, sessions, (header, txn, digest) -> {});
    tree.getNode(args[1]).stat.setCversion(Integer.parseInt(args[2]));
    tree.lastProcessedZxid = last + 1;
    files.save(tree, sessions, true);
    files.close();
  }
}
