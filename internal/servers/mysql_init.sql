CREATE DATABASE IF NOT EXISTS distlock;
CREATE USER IF NOT EXISTS 'distlock'@'%' IDENTIFIED BY '{{secret}}';
GRANT ALL ON distlock.* TO 'distlock'@'%';
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY '{{secret}}';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
ALTER USER 'root'@'localhost' IDENTIFIED BY '{{secret}}';
DROP USER IF EXISTS 'root'@'127.0.0.1';
DROP USER IF EXISTS 'root'@'::1';
